{{/* The name of an image with its digest, or without a digest with its tag. Takes: image, tag (for an image without a tag). */}}
{{- define "gpuslice.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .tag }}
{{- end -}}
{{- end -}}

{{/* The image of gpuslice. */}}
{{- define "gpuslice.own-image" -}}
{{- $_ := required "image.repository: write the name of your image of gpuslice; nobody publishes one" .Values.image.repository -}}
{{- include "gpuslice.image" (dict "image" .Values.image "tag" .Chart.AppVersion) -}}
{{- end -}}

{{/* The image of kube-scheduler in the version of the cluster, without a suffix that a distribution adds to the version. */}}
{{- define "gpuslice.scheduler-image" -}}
{{- $version := regexFind "^v[0-9]+[.][0-9]+[.][0-9]+" .Capabilities.KubeVersion.Version -}}
{{- include "gpuslice.image" (dict "image" .Values.scheduler.image "tag" $version) -}}
{{- end -}}

{{/* The labels that select the pods of a part. Takes: part. */}}
{{- define "gpuslice.selector" -}}
app.kubernetes.io/name: {{ .part }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end -}}

{{/* The labels of the objects of a part. Takes: root, part. */}}
{{- define "gpuslice.labels" -}}
{{ include "gpuslice.selector" . }}
app.kubernetes.io/part-of: gpuslice
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The text true if the cluster has admission policies and the values ask for them, and nothing otherwise. */}}
{{- define "gpuslice.has-policies" -}}
{{- if and .Values.policies.enabled (semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version) }}true{{ end -}}
{{- end -}}

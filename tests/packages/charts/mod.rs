//! Checks the chart with the real helm. Its objects fit the schemas of Kubernetes, give no unused right, and are those of the
//! manifests that need no helm.

mod cluster;
mod installed;
mod protocols;
mod tools;

use crate::support::repository::files_below;
use crate::support::{artefacts, skip};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use tools::{Tools, objects, told};

const IMAGE: &str = "image.repository=with-gpuslice";
const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Returns the object of this kind and name.
#[track_caller]
fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let is_it = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
    objects.iter().find(is_it).unwrap_or_else(|| panic!("there is no {kind} {name}"))
}

#[test]
fn the_chart_is_right_for_helm_and_its_objects_fit_their_schemas() {
    let Some(tools) = Tools::find("the chart") else { return };
    let linted = tools.helm(&["lint", "--strict", "charts/gpuslice", "--set", IMAGE]);
    assert!(linted.status.success(), "{}", told(&linted));
    let folder = tempfile::tempdir().unwrap();
    let digest = format!("image.digest={DIGEST}");
    let cases: [&[&str]; 3] = [
        &[IMAGE],
        &[IMAGE, "scheduler.enabled=false", "policies.enabled=false", "agent.autoAlloc=true"],
        &[
            IMAGE,
            &digest,
            "namespace.create=true",
            "podMonitor.enabled=true",
            "agent.runtimeClassName=nvidia",
            "imagePullSecrets[0].name=key",
            "commonLabels.team=a",
            "scheduler.nodeSelector.a=b",
        ],
    ];
    let rendered = |(number, settings): (usize, &&[&str])| {
        let path = folder.path().join(format!("{number}.yaml"));
        fs::write(&path, tools.render(settings)).unwrap();
        path
    };
    let files: Vec<PathBuf> = cases.iter().enumerate().map(rendered).collect();
    tools.conform(&files, &["PodMonitor"]);
    skip(
        "the PodMonitor against its schema: the operator's module is not served; elsewhere: on a cluster that has the operator",
    );
    // The check itself must find an unknown field and a wrong type.
    for (text, wrong) in [("hostPID: true", "hostPid: true"), ("containerPort: 9454", "containerPort: x")] {
        let path = folder.path().join("wrong.yaml");
        let whole = fs::read_to_string(&files[0]).unwrap();
        assert!(whole.contains(text));
        fs::write(&path, whole.replace(text, wrong)).unwrap();
        let checked = std::panic::catch_unwind(|| tools.conform(&[path], &[]));
        assert!(checked.is_err(), "{wrong} passes");
    }
}

#[test]
fn examples_fit_their_schemas() {
    let Some(tools) = Tools::find("examples of Kubernetes") else { return };
    let mut files = files_below(&artefacts::repository().join("examples/kubernetes"), Some("yaml"));
    // A kustomization is no object of the apiserver.
    files.retain(|path| !path.ends_with("kustomization.yaml"));
    for below in ["pod.yaml", "dra/three-pods.yaml", "slices/gpuslice.yaml"] {
        assert!(files.iter().any(|file| file.ends_with(below)), "{below} is missing in {files:?}");
    }
    tools.conform(&files, &[]);
}

/// With `GPUSLICE_TEST_BLESS` set, writes the manifests.
#[test]
fn the_manifests_without_helm_are_those_of_the_chart() {
    let Some(tools) = Tools::find("manifests that are rendered") else { return };
    let rendered = tools.render(&[IMAGE, "namespace.create=true", "scheduler.image.tag=v1.36.3"]);
    let text = format!(
        "# Written from charts/gpuslice: GPUSLICE_TEST_BLESS=1 cargo test -p gpuslice-cli --test packages charts\n{rendered}"
    );
    let path = artefacts::repository().join("examples/kubernetes/slices/gpuslice.yaml");
    if std::env::var_os("GPUSLICE_TEST_BLESS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap();
    assert!(
        committed == text,
        "{} is not what the chart makes; its first line says how to write it",
        path.display()
    );
}

#[test]
fn kustomize_puts_other_images_into_the_manifests() {
    let folder = artefacts::repository().join("examples/kubernetes/slices");
    let Ok(rendered) = Command::new("kubectl").arg("kustomize").arg(folder).output() else {
        skip("manifests with kustomize: there is no kubectl; to mend it: apt-get install kubernetes-client");
        return;
    };
    assert!(rendered.status.success(), "{}", told(&rendered));
    let objects = objects(&String::from_utf8(rendered.stdout).unwrap());
    let image =
        &find(&objects, "DaemonSet", "gpuslice-agent")["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!(image, "with-gpuslice:0.1.0");
}

/// Returns the rights of a role: group, resource, name, verb.
fn rights(role: &Value) -> BTreeSet<String> {
    let texts = |rule: &Value, key: &str| -> Vec<String> {
        let items = rule[key].as_array().cloned().unwrap_or_else(|| vec![json!("*")]);
        items.iter().map(|item| item.as_str().unwrap().to_owned()).collect()
    };
    let mut found = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        for (group, resource) in texts(rule, "apiGroups")
            .iter()
            .flat_map(|group| texts(rule, "resources").into_iter().map(move |one| (group.clone(), one)))
        {
            for verb in texts(rule, "verbs") {
                let names = texts(rule, "resourceNames").join(",");
                found.insert(format!("{group}/{resource} {names} {verb}"));
            }
        }
    }
    found
}

#[test]
fn roles_have_the_rights_that_are_used_and_no_other() {
    let Some(tools) = Tools::find("rights of the chart") else { return };
    let objects = objects(&tools.render(&[IMAGE]));
    let of = |kind, name: &str| rights(find(&objects, kind, name));
    let set = |rights: &[&str]| rights.iter().map(|right| (*right).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(
        of("ClusterRole", "gpuslice-agent"),
        set(&[
            "/pods * get",
            "/pods * list",
            "/nodes * get",
            "/nodes * patch",
            "/nodes/status * patch",
            "/events * create"
        ])
    );
    assert_eq!(
        of("ClusterRole", "gpuslice-extender"),
        set(&[
            "/pods * get",
            "/pods * list",
            "/pods * watch",
            "/pods * patch",
            "/pods/binding * create",
            "/nodes * get",
            "/nodes * list",
            "/nodes * watch",
            "policy/poddisruptionbudgets * list",
            "policy/poddisruptionbudgets * watch",
            "/events * create",
        ])
    );
    let lease = |right: &str| format!("coordination.k8s.io/leases {right}");
    assert_eq!(
        of("Role", "gpuslice-scheduler"),
        BTreeSet::from(
            [
                "* create",
                "gpuslice-extender get",
                "gpuslice-extender patch",
                "gpuslice-scheduler get",
                "gpuslice-scheduler update"
            ]
            .map(lease)
        )
    );
    let roles =
        objects.iter().filter(|object| ["ClusterRole", "Role"].map(Value::from).contains(&object["kind"]));
    assert_eq!(roles.count(), 3, "the test knows all roles");
}

#[test]
fn an_image_is_named_by_its_digest_and_the_scheduler_has_the_version_of_the_cluster() {
    let Some(tools) = Tools::find("images of the chart") else { return };
    let image = |settings: &[&str], kind, name, container: usize| {
        let objects = objects(&tools.render(settings));
        let spec = &find(&objects, kind, name)["spec"]["template"]["spec"];
        spec["containers"][container]["image"].as_str().unwrap().to_owned()
    };
    let digest = format!("image.digest={DIGEST}");
    assert_eq!(image(&[IMAGE], "DaemonSet", "gpuslice-agent", 0), "with-gpuslice:0.1.0");
    for (kind, name) in [("DaemonSet", "gpuslice-agent"), ("Deployment", "gpuslice-scheduler")] {
        assert_eq!(image(&[IMAGE, &digest], kind, name, 0), format!("with-gpuslice@{DIGEST}"));
    }
    let arguments =
        ["template", "g", "charts/gpuslice", "--set", IMAGE, "--kube-version", "v1.31.4-gke.1183000"];
    let rendered = tools.helm(&arguments);
    assert!(
        told(&rendered).contains("image: registry.k8s.io/kube-scheduler:v1.31.4\n"),
        "{}",
        told(&rendered)
    );
}

/// Without `honorLabels` Prometheus names the agent's own pod in the label `pod` of each slice.
#[test]
fn the_monitor_of_agents_keeps_the_labels_of_slices() {
    let Some(tools) = Tools::find("the labels of the PodMonitor") else { return };
    let objects = objects(&tools.render(&[IMAGE, "podMonitor.enabled=true"]));
    let endpoints = &find(&objects, "PodMonitor", "gpuslice-agent")["spec"]["podMetricsEndpoints"];
    assert_eq!(*endpoints, json!([{"port": "metrics", "honorLabels": true}]));
}

#[test]
fn values_that_are_wrong_are_refused_with_the_reason() {
    let Some(tools) = Tools::find("values of the chart") else { return };
    let digest = format!("image.digest={}", DIGEST.replace('0', "g"));
    for (settings, says) in [
        (&[][..], "write the name of your image"),
        (&[IMAGE, "agent.slotPerGpu=4"], "slotPerGpu"),
        (&[IMAGE, "agent.slotsPerGpu=0"], "slotsPerGpu"),
        (&[IMAGE, "scheduler.order=random"], "order"),
        (&[IMAGE, "scheduler.name=default-scheduler"], "name"),
        (&[IMAGE, &digest], "digest"),
    ] {
        let refused = tools.template(settings);
        assert!(
            !refused.status.success() && told(&refused).contains(says),
            "{settings:?}: {}",
            told(&refused)
        );
    }
    let old = tools.helm(&["template", "g", "charts/gpuslice", "--set", IMAGE, "--kube-version", "1.28.0"]);
    assert!(told(&old).contains("incompatible with Kubernetes v1.28.0"), "{}", told(&old));
}

/// Checks that no manifest installs a webhook: if one did not answer, it would stop all new pods of the cluster.
#[test]
fn no_manifest_has_a_webhook() {
    let is_webhook = |text: &str| {
        let kinds = text.lines().filter_map(|line| line.trim_start_matches([' ', '-']).strip_prefix("kind:"));
        kinds.into_iter().any(|kind| kind.trim().trim_matches('"').ends_with("WebhookConfiguration"))
    };
    assert!(is_webhook("- kind: ValidatingWebhookConfiguration\n"));
    let folders = ["charts/gpuslice/templates", "examples/kubernetes"];
    let files: Vec<PathBuf> =
        folders.iter().flat_map(|folder| files_below(&artefacts::repository().join(folder), None)).collect();
    assert!(files.iter().any(|file| file.ends_with("slices/gpuslice.yaml")), "{files:?}");
    for file in files {
        assert!(!is_webhook(&fs::read_to_string(&file).unwrap()), "{}", file.display());
    }
    let Some(tools) = Tools::find("webhooks of the rendered chart") else { return };
    assert!(!is_webhook(&tools.render(&[IMAGE, "podMonitor.enabled=true", "namespace.create=true"])));
}

/// The policies name the accounts that the programs have.
#[test]
fn policies_name_the_accounts_of_the_extender_and_the_agent() {
    let Some(tools) = Tools::find("admission policies of the chart") else { return };
    let objects = objects(&tools.render(&[IMAGE]));
    for (policy, kind, workload) in [
        ("gpuslice-alloc", "Deployment", "gpuslice-scheduler"),
        ("gpuslice-agent", "DaemonSet", "gpuslice-agent"),
    ] {
        let workload = find(&objects, kind, workload);
        let account = workload["spec"]["template"]["spec"]["serviceAccountName"].as_str().unwrap();
        let user = format!("'system:serviceaccount:gpuslice:{account}'");
        let policy = &find(&objects, "ValidatingAdmissionPolicy", policy)["spec"];
        let condition = policy["matchConditions"][0]["expression"].as_str().unwrap();
        assert!(condition.ends_with(&user), "{condition}");
        assert_eq!(policy["failurePolicy"], "Fail");
    }
    for policy in objects.iter().filter(|object| object["kind"] == "ValidatingAdmissionPolicy") {
        let name = policy["metadata"]["name"].as_str().unwrap();
        let binding = find(&objects, "ValidatingAdmissionPolicyBinding", name);
        assert_eq!(
            (&binding["spec"]["policyName"], &binding["spec"]["validationActions"]),
            (&json!(name), &json!(["Deny"]))
        );
    }
    let old = tools.helm(&["template", "g", "charts/gpuslice", "--set", IMAGE, "--kube-version", "1.29.0"]);
    assert!(old.status.success() && !told(&old).contains("ValidatingAdmissionPolicy"), "{}", told(&old));
}

/// The extender itself reads its arguments: it ends if the name of the lease or the port is malformed.
#[test]
fn the_extender_takes_the_arguments_of_the_chart() {
    let Some(tools) = Tools::find("the extender's arguments of the chart") else { return };
    let objects = objects(&tools.render(&[IMAGE, "scheduler.order=spread"]));
    let pod = &find(&objects, "Deployment", "gpuslice-scheduler")["spec"]["template"]["spec"];
    let command = pod["containers"][0]["command"].as_array().unwrap();
    let words: Vec<&str> = command.iter().map(|word| word.as_str().unwrap()).collect();
    assert_eq!(words[0], "gpuslice-agent");
    assert!(
        words.contains(&"--lease=gpuslice/gpuslice-extender") && words.contains(&"--order=spread"),
        "{words:?}"
    );
    // This needs no apiserver, because the extender checks its address last.
    let mut extender = Command::new(artefacts::agent());
    let ended = extender.args(&words[1..]).env_remove("KUBERNETES_SERVICE_HOST").output().unwrap();
    assert!(told(&ended).contains("KUBERNETES_SERVICE_HOST is not set"), "{}", told(&ended));
}

/// The agent itself reads the configuration that the chart writes.
#[test]
fn the_agent_takes_the_configuration_of_the_chart() {
    let Some(tools) = Tools::find("the agent's configuration of the chart") else { return };
    let objects =
        objects(&tools.render(&[IMAGE, "agent.autoAlloc=true", "agent.slotsPerGpu=8", "agent.port=9999"]));
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("agent.toml");
    let text =
        find(&objects, "ConfigMap", "gpuslice-agent")["data"]["agent.toml"].as_str().unwrap().to_owned();
    assert!(
        text.contains("auto_alloc = true") && text.contains("slots_per_gpu = 8") && text.contains(":9999"),
        "{text}"
    );
    fs::write(&config, text).unwrap();
    let mut check = Command::new(artefacts::agent());
    let checked = check.args(["check", "--config"]).arg(&config).env("NODE_NAME", "n1").output().unwrap();
    assert!(checked.status.success(), "{}", told(&checked));
}

/// Checks that agents apply later amounts only where a policy leaves the annotation to the extender.
#[test]
fn agents_resize_where_the_chart_has_its_policies() {
    let Some(tools) = Tools::find("the agent's configuration with policies") else { return };
    for (version, policies, resize) in
        [("1.30.0", "true", "true"), ("1.30.0", "false", "false"), ("1.29.0", "true", "false")]
    {
        let setting = format!("policies.enabled={policies}");
        let arguments = [
            "template",
            "g",
            "charts/gpuslice",
            "--set",
            IMAGE,
            "--set",
            &setting,
            "--kube-version",
            version,
        ];
        let rendered = told(&tools.helm(&arguments));
        assert!(rendered.contains(&format!("\n    resize = {resize}\n")), "{version} {policies}: {rendered}");
    }
}

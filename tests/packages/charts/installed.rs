//! Installs the chart in a real apiserver, which takes its objects, evaluates its policies, and grants its rights.

use super::IMAGE;
use super::cluster::{Cluster, TIMEOUT, User, kubeconfig_argument};
use super::tools::{Tools, told};
use crate::support::artefacts;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Returns a pod of these containers, each with its limits of slices, memory and time.
fn pod(name: &str, containers: &[[i64; 3]]) -> Value {
    let container = |(number, [slices, memory, core]): (usize, &[i64; 3])| {
        let limits = [("slice", slices), ("memory-mib", memory), ("core-percent", core)];
        let limits = limits.iter().filter(|(_, value)| **value != 0);
        let limits: serde_json::Map<String, Value> = limits
            .map(|(resource, value)| (format!("gpuslice.dev/{resource}"), json!(value.to_string())))
            .collect();
        json!({"name": format!("c{number}"), "image": "x", "resources": {"limits": limits}})
    };
    let containers: Vec<Value> = containers.iter().enumerate().map(container).collect();
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulerName": "gpuslice-scheduler", "containers": containers}})
}

/// Sends a request. Returns the answer with its head.
fn http(address: SocketAddr, method: &str, path: &str, form: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: {length}"
    );
    write!(stream, "{head}\r\nContent-Type: application/{form}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

struct Installed {
    tools: Tools,
    cluster: Cluster,
}

impl Installed {
    fn begin(what: &str) -> Option<Self> {
        let tools = Tools::find(what)?;
        let cluster = Cluster::begin(what)?;
        let installed = Self { tools, cluster };
        installed.helm(&["install", "gpuslice", "charts/gpuslice", "--create-namespace", "--set", IMAGE]);
        let role = ["create", "clusterrole", "tenant", "--verb=*", "--resource=pods"];
        installed.done(User::Administrator, &role, &Value::Null);
        let binding = ["create", "clusterrolebinding", "tenant", "--clusterrole=tenant", "--user=tenant"];
        installed.done(User::Administrator, &binding, &Value::Null);
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "annotations": {
            "gpuslice.dev/inventory": json!({"v": 1, "driver": "", "gpus": [
                {"uuid": "GPU-a", "model": "", "memMiB": 16384, "core": 100, "healthy": true}]}).to_string()}}});
        installed.done(User::Administrator, &["create", "-f", "-"], &node);
        Some(installed)
    }

    fn helm(&self, arguments: &[&str]) {
        let config = kubeconfig_argument(&self.cluster.kubeconfig(User::Administrator));
        let output = self.tools.helm(&[arguments, &["--namespace=gpuslice", &config]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", told(&output));
    }

    #[track_caller]
    fn done(&self, user: User, arguments: &[&str], object: &Value) {
        let (is_done, told) = self.cluster.kubectl(user, arguments, &object.to_string());
        assert!(is_done, "{arguments:?} {object}: {told}");
    }

    /// Asserts that the request is refused with this reason. The apiserver must know the policies already.
    #[track_caller]
    fn refused(&self, user: User, arguments: &[&str], object: &Value, says: &str) {
        let (is_done, told) = self.cluster.kubectl(user, arguments, &object.to_string());
        assert!(!is_done && told.contains(says), "{arguments:?} {object}: not {says:?}, but {told}");
    }

    fn until_policies_hold(&self) {
        let wrong = pod("wrong", &[[1, 0, 0]]).to_string();
        until(|| {
            let words = ["create", "--dry-run=server", "-f", "-"];
            let (_, told) = self.cluster.kubectl(User::Tenant, &words, &wrong);
            (told.contains("ValidatingAdmissionPolicy"), told)
        });
    }

    /// Returns the annotation with the parts of a pod.
    fn alloc(&self, name: &str) -> String {
        let pod = self.cluster.object("pod", name);
        pod["metadata"]["annotations"]["gpuslice.dev/alloc"].as_str().unwrap().to_owned()
    }
}

/// Looks every 0.1 s until `look` says that a state is reached, for [`TIMEOUT`] at most. The second value tells the state.
#[track_caller]
fn until<T: Debug>(look: impl Fn() -> (bool, T)) {
    let end = Instant::now() + TIMEOUT;
    loop {
        let (is_reached, told) = look();
        if is_reached {
            return;
        }
        assert!(Instant::now() < end, "{told:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn an_apiserver_takes_the_chart_and_its_policies_refuse_as_they_say() {
    let Some(mut installed) = Installed::begin("admission policies in an apiserver") else { return };
    let proxy = installed.cluster.proxy(User::Account("gpuslice-agent"));
    installed.until_policies_hold();
    let create = ["create", "-f", "-"];
    for (containers, says) in [
        (&[[1, 0, 0]][..], "slice without gpuslice.dev/memory-mib"),
        (&[[0, 4096, 0]], "without gpuslice.dev/slice"),
        (&[[1, 4096, 0], [0, 0, 30]], "without gpuslice.dev/slice"),
        (&[[2, 4097, 0]], "is not divisible"),
        (&[[2, 4096, 33]], "is not divisible"),
        (&[[1, 4096, 101]], "more than 100"),
    ] {
        installed.refused(User::Tenant, &create, &pod("wrong", containers), says);
    }
    // A pod without the key has no limit of time.
    let mut without_time = pod("wrong", &[[1, 4096, 30]]);
    without_time["spec"]["containers"][0]["resources"]["limits"]["gpuslice.dev/core-percent"] = json!("0");
    installed.refused(User::Tenant, &create, &without_time, "gpuslice.dev/core-percent is 0");
    for (name, containers) in [
        ("a", &[[1, 4096, 30]][..]),
        ("b", &[[2, 8192, 200]]),
        ("c", &[[0, 0, 0], [1, 1, 0]]),
        ("d", &[[0, 0, 0]]),
    ] {
        installed.done(User::Tenant, &create, &pod(name, containers));
    }
    for (name, wrong, right) in [("gpu-topology", "nvswitch", "numa"), ("gpu-model", "H100,", "H100,A100")] {
        let mut constrained = pod(name, &[[1, 1024, 0]]);
        constrained["metadata"]["annotations"] = json!({format!("gpuslice.dev/{name}"): wrong});
        installed.refused(User::Tenant, &create, &constrained, name);
        constrained["metadata"]["annotations"] = json!({format!("gpuslice.dev/{name}"): right});
        installed.done(User::Tenant, &create, &constrained);
    }
    // An init container has the slice of another container, or none.
    let mut init = pod("init", &[[0, 0, 0]]);
    init["spec"]["initContainers"] = pod("", &[[1, 4096, 0]])["spec"]["containers"].clone();
    init["spec"]["initContainers"][0]["name"] = json!("init");
    installed.refused(User::Tenant, &create, &init, "an init container asks for more");
    init["spec"]["initContainers"][0]["restartPolicy"] = json!("Always");
    installed.done(User::Tenant, &create, &init);

    // Only the extender may write the allocation. A tenant may not: in no new pod, in no old one, and through no other resource.
    let only = "writes the annotation gpuslice.dev/alloc";
    let mut claimed = pod("claimed", &[[1, 4096, 30]]);
    claimed["metadata"]["annotations"] = json!({"gpuslice.dev/alloc": "{}"});
    installed.refused(User::Tenant, &create, &claimed, only);
    let annotate = ["annotate", "pod", "a", "gpuslice.dev/alloc={}"];
    installed.refused(User::Tenant, &annotate, &Value::Null, only);
    installed.refused(User::Administrator, &[&annotate[..], &["--overwrite"]].concat(), &Value::Null, only);
    let patch = r#"--patch={"metadata":{"annotations":{"gpuslice.dev/alloc":"{}"}}}"#;
    installed.refused(
        User::Administrator,
        &["patch", "pod", "a", "--subresource=status", patch],
        &Value::Null,
        only,
    );
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "n1"},
        "metadata": {"name": "b", "namespace": "default", "annotations": {"gpuslice.dev/alloc": "{}"}}});
    let raw = ["create", "--raw=/api/v1/namespaces/default/pods/b/binding", "-f", "-"];
    installed.refused(User::Administrator, &raw, &binding, only);
    installed.done(User::Account("gpuslice-scheduler"), &["patch", "pod", "a", patch], &Value::Null);
    // The policy leaves other annotations to the tenant.
    installed.done(User::Tenant, &["annotate", "pod", "a", "other=1"], &Value::Null);
    installed.refused(User::Tenant, &["annotate", "pod", "a", "gpuslice.dev/alloc-"], &Value::Null, only);

    // Only a user with that right may change amounts.
    let resize = ["annotate", "pod", "b", "gpuslice.dev/resize={}"];
    installed.refused(User::Tenant, &resize, &Value::Null, "needs the verb resize on slices.gpuslice.dev");
    let mut greedy = pod("greedy", &[[1, 16, 0]]);
    greedy["metadata"]["annotations"] = json!({"gpuslice.dev/resize": "{}"});
    installed.refused(User::Tenant, &create, &greedy, "needs the verb resize");
    let rule = json!([{"apiGroups": ["gpuslice.dev"], "resources": ["slices"], "verbs": ["resize"]}]);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": rule,
        "metadata": {"name": "resize", "namespace": "default"}});
    installed.done(User::Administrator, &create, &role);
    let bind = ["create", "rolebinding", "resize", "--role=resize", "--user=tenant"];
    installed.done(User::Administrator, &bind, &Value::Null);
    installed.done(User::Tenant, &resize, &Value::Null);

    // An agent writes its own node, and of that node only its own fields.
    let agent = User::Account("gpuslice-agent");
    let inventory = r#"--patch={"metadata":{"annotations":{"gpuslice.dev/inventory":"{}"}}}"#;
    installed.done(
        User::Administrator,
        &create,
        &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2"}}),
    );
    installed.done(agent, &["patch", "node", "n1", inventory], &Value::Null);
    installed.refused(
        agent,
        &["patch", "node", "n2", inventory],
        &Value::Null,
        "writes the node that its pod runs on",
    );
    // The test asks as the agent does. kubectl would read the status first, for which the agent has no right.
    let sums = |node: &str| {
        let path = format!("/api/v1/nodes/{node}/status");
        http(
            proxy,
            "PATCH",
            &path,
            "merge-patch+json",
            r#"{"status":{"capacity":{"gpuslice.dev/memory-mib":"1"}}}"#,
        )
    };
    assert!(sums("n1").starts_with("HTTP/1.1 200"), "{}", sums("n1"));
    assert!(sums("n2").contains("its pod runs on"), "{}", sums("n2"));
    let cordon = r#"--patch={"spec":{"unschedulable":true}}"#;
    installed.refused(agent, &["patch", "node", "n1", cordon], &Value::Null, "leaves the specification");
    installed.refused(agent, &["patch", "pod", "a", patch], &Value::Null, "forbidden");

    installed.helm(&[
        "upgrade",
        "gpuslice",
        "charts/gpuslice",
        "--set",
        IMAGE,
        "--set",
        "scheduler.replicas=1",
    ]);
    installed.helm(&["uninstall", "gpuslice"]);
    let kinds = "clusterroles,clusterrolebindings,roles,rolebindings,validatingadmissionpolicies,daemonsets,deployments";
    let left =
        ["get", kinds, "--all-namespaces", "--selector=app.kubernetes.io/part-of=gpuslice", "--output=name"];
    assert_eq!(installed.cluster.kubectl(User::Administrator, &left, ""), (true, String::new()));
}

/// The real extender, with the rights of the chart.
struct Extender {
    process: Child,
    address: SocketAddr,
}

impl Extender {
    fn begin(apiserver: SocketAddr) -> Self {
        let apiserver = format!("http://{apiserver}");
        let arguments = [
            "extender",
            "--listen=127.0.0.1:0",
            "--lease=gpuslice/gpuslice-extender",
            "--apiserver",
            &apiserver,
        ];
        let mut command = Command::new(artefacts::agent());
        let mut process = command.args(arguments).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let line =
            lines.find_map(|line| line.unwrap().split_once("address=").map(|(_, rest)| rest.to_owned()));
        let address = line.expect("it serves").parse().unwrap();
        std::thread::spawn(move || {
            lines.for_each(|line| println!("an extender: {}", line.unwrap_or_default()));
        });
        Self { process, address }
    }

    /// Binds a pod. Returns the error.
    fn bind(&self, pod: &Value) -> String {
        let metadata = &pod["metadata"];
        let body = json!({"PodName": metadata["name"], "PodNamespace": metadata["namespace"], "PodUID": metadata["uid"], "Node": "n1"});
        let answer = http(self.address, "POST", "/bind", "json", &body.to_string());
        let answer: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        answer["Error"].as_str().unwrap().to_owned()
    }

    fn end(mut self) {
        let killed = Command::new("kill").arg(self.process.id().to_string()).status().unwrap();
        assert!(killed.success() && self.process.wait().unwrap().success());
    }
}

impl Drop for Extender {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _waited_for = self.process.wait();
    }
}

#[test]
fn two_extenders_with_the_rights_of_the_chart_bind_one_after_the_other() {
    let Some(mut installed) = Installed::begin("extenders with an apiserver") else { return };
    for name in ["a", "b", "c"] {
        installed.done(User::Tenant, &["create", "-f", "-"], &pod(name, &[[1, 8192, 30]]));
    }
    let [a, b, c] = ["a", "b", "c"].map(|name| installed.cluster.object("pod", name));
    let proxy = installed.cluster.proxy(User::Account("gpuslice-scheduler"));
    let (first, second) = (Extender::begin(proxy), Extender::begin(proxy));
    assert_eq!(first.bind(&a), "");
    let bound = installed.cluster.object("pod", "a");
    assert_eq!(bound["spec"]["nodeName"], "n1");
    assert!(installed.alloc("a").contains("GPU-a"), "{bound}");
    assert!(second.bind(&b).contains("has the lease"));
    first.end();
    assert_eq!(second.bind(&b), "");
    assert!(second.bind(&c).contains("at most 0 MiB"), "it knows what the first one has bound");
    // A running pod gets other amounts, or its user gets an event. The extender has the rights for both.
    for (name, text, wanted) in [
        ("a", r#"{"v":1,"c":{"c0":{"memMiB":4096}}}"#, "4096"),
        ("b", r#"{"v":1,"c":{"c0":{"memMiB":16000}}}"#, ""),
    ] {
        let patch = json!({"metadata": {"annotations": {"gpuslice.dev/resize": text}}});
        let patch = format!("--patch={patch}");
        installed.done(User::Administrator, &["patch", "pod", name, &patch], &Value::Null);
        until(|| {
            let alloc = installed.alloc(name);
            let events = installed.cluster.kubectl(User::Administrator, &["get", "events"], "").1;
            let refused = events.contains("ResizeRefused") && events.contains("16000 MiB");
            let is_done = if wanted.is_empty() { refused } else { alloc.contains(wanted) };
            (is_done, (name, alloc, events))
        });
    }
    let get = [
        "get",
        "lease",
        "gpuslice-extender",
        "--namespace=gpuslice",
        "--output=jsonpath={.spec.leaseTransitions} {.spec.renewTime}",
    ];
    let (_, told) = installed.cluster.kubectl(User::Administrator, &get, "");
    assert!(told.starts_with("1 2"), "{told}");
}

/// Runs the commands of the example's `CronJobs` with the rights that the example gives its account.
#[test]
fn the_example_of_day_and_night_changes_the_sizes_of_pods() {
    let Some(mut installed) = Installed::begin("the CronJobs of the example in an apiserver") else { return };
    installed.until_policies_hold();
    let text =
        fs::read_to_string(artefacts::repository().join("examples/kubernetes/day-night.yaml")).unwrap();
    let (is_done, told) = installed.cluster.kubectl(User::Administrator, &["create", "-f", "-"], &text);
    assert!(is_done, "{told}");
    let mut train = pod("train", &[[1, 4096, 20]]);
    train["metadata"]["labels"] = json!({"app": "train"});
    train["spec"]["containers"][0]["name"] = json!("main");
    installed.done(User::Tenant, &["create", "-f", "-"], &train);
    let extender = Extender::begin(installed.cluster.proxy(User::Account("gpuslice-scheduler")));
    assert_eq!(extender.bind(&installed.cluster.object("pod", "train")), "");
    for (job, amounts) in [("night", json!([12_288, 80])), ("day", json!([4096, 20]))] {
        let job = installed.cluster.object("cronjob", job);
        let spec = &job["spec"]["jobTemplate"]["spec"]["template"]["spec"];
        let account =
            format!("--as=system:serviceaccount:default:{}", spec["serviceAccountName"].as_str().unwrap());
        let words =
            spec["containers"][0]["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
        let words: Vec<&str> = [account.as_str()].into_iter().chain(words).collect();
        installed.done(User::Administrator, &words, &Value::Null);
        until(|| {
            let alloc: Value = serde_json::from_str(&installed.alloc("train")).unwrap();
            let part = &alloc["c"]["main"][0];
            (json!([part["memMiB"], part["core"]]) == amounts, alloc)
        });
    }
}

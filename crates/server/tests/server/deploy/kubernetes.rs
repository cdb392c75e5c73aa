//! Manifests of Kubernetes.

use std::collections::BTreeSet;

use yaml_rust2::Yaml;

use super::{
    CONFIGURATION, DATA, USER, assert_taken, checked, file, parsed, path, port, texts, yaml,
};
use crate::support::{Ended, Server, busload};

const MANIFESTS: [&str; 2] =
    ["deploy/kubernetes/statefulset.yaml", "deploy/kubernetes/sidecar.yaml"];
const IMAGE: &str = concat!("busload:", env!("CARGO_PKG_VERSION"));
const PROBES: [&str; 3] = ["startupProbe", "readinessProbe", "livenessProbe"];

/// Returns the object of this kind.
fn object<'a>(documents: &'a [Yaml], kind: &str) -> &'a Yaml {
    documents.iter().find(|document| document["kind"].as_str() == Some(kind)).unwrap()
}

/// Returns the pods' specification.
fn pod(documents: &[Yaml]) -> &Yaml {
    let workload = documents.iter().find(|document| !document["spec"]["template"].is_badvalue());
    &workload.unwrap()["spec"]["template"]["spec"]
}

fn containers(pod: &Yaml) -> impl Iterator<Item = &Yaml> {
    ["initContainers", "containers"].into_iter().filter_map(|list| pod[list].as_vec()).flatten()
}

/// Returns the container of busload.
fn container(pod: &Yaml) -> &Yaml {
    containers(pod).find(|container| container["image"].as_str() == Some(IMAGE)).unwrap()
}

fn configuration(documents: &[Yaml]) -> &str {
    object(documents, "ConfigMap")["data"]["busload.toml"].as_str().unwrap()
}

/// Returns the variables of a container, with values in place of secrets.
fn environment(container: &Yaml) -> Vec<(&str, &str)> {
    let variables = container["env"].as_vec().unwrap();
    variables.iter().map(|variable| (variable["name"].as_str().unwrap(), "sesame")).collect()
}

#[test]
fn configurations_are_accepted() {
    for name in MANIFESTS {
        let documents = yaml(name);
        let text = configuration(&documents);
        let ended = checked(text, &environment(container(pod(&documents))));
        // The database of the sidecar is not there: a start would succeed all the same.
        assert!(ended.stdout.contains("would succeed"), "{name}: {ended:?}");
        let outside = parsed(text)["resp"].as_str().unwrap().starts_with("0.0.0.0");
        assert_eq!(outside, name.contains("statefulset"), "{name}");
        if outside {
            let ended = checked(text, &[]);
            assert!(ended.failed(2).contains("without a password"), "{name}: {ended:?}");
        }
    }
}

#[test]
fn commands_ports_and_volumes_fit_together() {
    for name in MANIFESTS {
        let documents = yaml(name);
        let (pod, settings) = (pod(&documents), parsed(configuration(&documents)));
        let container = container(pod);
        let arguments = texts(&container["args"]);
        assert_eq!(arguments, ["serve", "--config", CONFIGURATION], "{name}");
        assert_taken(&arguments);
        assert_eq!(settings["data"].as_str(), Some(DATA));

        for port in container["ports"].as_vec().into_iter().flatten() {
            let front = port["name"].as_str().unwrap();
            assert_eq!(port["containerPort"].as_i64(), Some(self::port(&settings, front)));
        }
        let mounts: BTreeSet<(&str, &str)> = container["volumeMounts"]
            .as_vec()
            .unwrap()
            .iter()
            .map(|mount| (mount["name"].as_str().unwrap(), mount["mountPath"].as_str().unwrap()))
            .collect();
        assert_eq!(mounts, [("data", DATA), ("configuration", "/etc/busload")].into(), "{name}");
        let volumes = pod["volumes"].as_vec().unwrap().iter().map(|volume| &volume["name"]);
        let stateful = documents.iter().flat_map(|document| {
            document["spec"]["volumeClaimTemplates"].as_vec().into_iter().flatten()
        });
        let volumes: BTreeSet<&str> = volumes
            .chain(stateful.map(|claim| &claim["metadata"]["name"]))
            .map(|name| name.as_str().unwrap())
            .collect();
        assert_eq!(volumes, mounts.iter().map(|(name, _)| *name).collect(), "{name}");
        let map = pod["volumes"]
            .as_vec()
            .unwrap()
            .iter()
            .find(|volume| volume["name"].as_str() == Some("configuration"));
        let map_name = &object(&documents, "ConfigMap")["metadata"]["name"];
        assert_eq!(&map.unwrap()["configMap"]["name"], map_name, "{name}");
    }
    let documents = yaml(MANIFESTS[0]);
    let settings = parsed(configuration(&documents));
    let service = object(&documents, "Service");
    for port in service["spec"]["ports"].as_vec().unwrap() {
        let front = port["targetPort"].as_str().unwrap();
        assert_eq!(port["port"].as_i64(), Some(self::port(&settings, front)));
    }
    let stateful_set = &object(&documents, "StatefulSet")["spec"];
    assert_eq!(stateful_set["serviceName"], service["metadata"]["name"]);
    assert_eq!(stateful_set["replicas"].as_i64(), Some(1), "two would be two databases");
    let labels = &stateful_set["template"]["metadata"]["labels"];
    assert_eq!(labels, &stateful_set["selector"]["matchLabels"]);
    assert_eq!(labels, &service["spec"]["selector"]);
}

/// Every probe is tried on a server with the manifest's own configuration.
#[test]
fn probes_succeed_on_a_server_that_serves() {
    for name in MANIFESTS {
        let documents = yaml(name);
        let container = container(pod(&documents));
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("busload.toml");
        std::fs::write(&file, configuration(&documents)).unwrap();
        let mut command = busload();
        command.arg("serve").arg("--config").arg(&file);
        command.arg("--data").arg(directory.path().join("data"));
        command.args(["--resp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-format", "text"]);
        let server = Server::try_start({
            command.envs(environment(container));
            command
        });
        let server = server.unwrap_or_else(|ended| panic!("{name}: {ended:?}"));
        for probe in PROBES {
            let probe = &container[probe];
            if let Some(path) = probe["httpGet"]["path"].as_str() {
                assert_eq!(probe["httpGet"]["port"].as_str(), Some("http"));
                let (status, _) = server.http(path);
                assert!(status.contains("200"), "{path}: {status}");
                continue;
            }
            let words = texts(&probe["exec"]["command"]);
            assert_eq!(words[0], "/usr/bin/busload", "{name}");
            let here = words[1..].iter().map(|word| match *word {
                CONFIGURATION => file.to_str().unwrap(),
                word => word,
            });
            let mut command = busload();
            command.args(here).args(["--http", &server.address("http").to_string()]);
            let ended = Ended::of(command.envs(environment(container)).output().unwrap());
            assert_eq!(ended.code, Some(0), "{name}: {ended:?}");
        }
        assert!(server.stop().success());
    }
}

#[test]
fn containers_may_do_nothing_that_they_need_not() {
    for name in MANIFESTS {
        let documents = yaml(name);
        let pod = pod(&documents);
        let context = &pod["securityContext"];
        assert_eq!(context["runAsNonRoot"].as_bool(), Some(true), "{name}");
        for user in ["runAsUser", "runAsGroup", "fsGroup"] {
            assert_eq!(context[user].as_i64(), Some(USER), "{name}: {user}");
        }
        assert_eq!(context["seccompProfile"]["type"].as_str(), Some("RuntimeDefault"));
        assert_eq!(pod["automountServiceAccountToken"].as_bool(), Some(false));
        for container in containers(pod) {
            let context = &container["securityContext"];
            assert_eq!(context["allowPrivilegeEscalation"].as_bool(), Some(false), "{name}");
            assert_eq!(context["readOnlyRootFilesystem"].as_bool(), Some(true), "{name}");
            assert_eq!(texts(&context["capabilities"]["drop"]), ["ALL"], "{name}");
            let resources = &container["resources"];
            for what in ["requests", "limits"] {
                assert!(resources[what]["memory"].as_str().is_some(), "{name}: {what}");
            }
        }
        // Secrets are named, and never in the file.
        assert!(documents.iter().all(|document| document["kind"].as_str() != Some("Secret")));
        let secrets = container(pod)["env"].as_vec().unwrap();
        for variable in secrets {
            let source = &variable["valueFrom"]["secretKeyRef"];
            let (secret, key) = (source["name"].as_str().unwrap(), source["key"].as_str().unwrap());
            let create = format!("create secret generic {secret} --from-literal={key}=");
            assert!(file(name).contains(&create), "{name} does not say how to make {secret}");
        }
    }
}

#[test]
fn the_page_names_the_manifests() {
    let page = file("docs/deploy.md");
    for name in MANIFESTS {
        assert!(path(name).exists() && page.contains(name), "{name}");
    }
}

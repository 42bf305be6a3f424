//! A user's own image as the subject, started as `docker run` would, in the
//! image's environment, by the image's user.

use crate::docker::{docker, has_engine};
use crate::place::Place;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};

/// `docker run IMAGE ARGUMENTS` is `python -u worker.py ARGUMENTS`, as `app`, in /srv.
const DOCKERFILE: &str = r#"FROM halfopen/subject:bookworm
RUN echo 'app:x:1234:1234::/srv:/bin/sh' >> /etc/passwd
COPY worker.py /srv/worker.py
ENV GREETING=hello-from-the-image
WORKDIR /srv
USER app
ENTRYPOINT ["python3", "-u", "worker.py"]
"#;

const SCENARIO: &str = r#"# Does the image's own worker notice?
[scenario]
name = "own-image"
horizon = "6s"
trials = 2
settle = "500ms"

[[arm]]
name = "read-timeout"
client = { read_timeout = "2" }
subject = { image = "IMAGE", command = ["{host}", "{port}", "{password}", "{db}", "{queue}", "{client.read_timeout}"], broker = "redis", done = "done {message}", lost = "lost the connection" }

[load]
rate = "2/s"

[fault]
profile = "blackhole"
phase_window = "1s"
"#;

#[test]
fn a_worker_in_an_image_of_its_own_is_tested_as_it_is() {
    if !has_engine() {
        return;
    }
    let place = Place::of_root();
    let image = format!("halfopen-test/own-{}:latest", std::process::id());
    let worker = std::fs::read_to_string("examples/own-consumer/worker.py").unwrap();
    let greeting =
        "\nimport os\nprint(os.environ['GREETING'], os.getuid(), os.getcwd(), os.environ['HOME'], flush=True)\n";
    let (docs, code) = worker.split_once("\nimport socket").unwrap();
    std::fs::create_dir(place.path("image")).unwrap();
    std::fs::write(place.path("image/worker.py"), format!("{docs}{greeting}\nimport socket{code}")).unwrap();
    std::fs::write(place.path("image/Dockerfile"), DOCKERFILE).unwrap();
    let mut build = Command::new("docker");
    build.args(["build", "-q", "-t", &image]).arg(place.path("image")).env("DOCKER_BUILDKIT", "0");
    assert!(build.stdout(Stdio::null()).status().unwrap().success());
    std::fs::write(place.path("scenario.toml"), SCENARIO.replace("IMAGE", &image)).unwrap();

    // Elsewhere there are no images: said before anything is made.
    let elsewhere = place.halfopen().args(["run", "scenario.toml", "--out", "elsewhere"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&elsewhere.stderr).into_owned();
    assert_eq!(elsewhere.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("run it with --lab docker") && !place.path("elsewhere").exists(), "{stderr}");

    let output = place.halfopen().args(["run", "scenario.toml", "--lab", "docker", "--out", "out"]).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    docker(&["rmi", "-f", &image]);
    let log = std::fs::read_to_string(place.path("out/logs/trial-0.log")).unwrap_or_default();
    assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}{log}");
    assert!(log.contains("hello-from-the-image 1234 /srv /srv"), "{log}");
    let mut rows = csv::Reader::from_path(place.path("out/trials.csv")).unwrap();
    let rows: Vec<BTreeMap<String, String>> = rows.deserialize().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 2);
    for row in rows {
        let ttd: f64 = row["ttd_s"].parse().unwrap_or(-1.0);
        assert!(row["outcome"] == "detected" && (1.4..3.0).contains(&ttd), "{row:?}");
    }
}

//! `halfopen reap` against a real PostgreSQL and a real Redis, and the task store of a run on that PostgreSQL.

use crate::common::{binary, require_root};
use halfopen::reaper::rule::Action;
use halfopen::reaper::{Place, Status, TaskId, TaskStore};
use halfopen::units::Offset;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// PostgreSQL refuses to run as root.
pub const NOBODY: u32 = 65_534;

/// Both servers on sockets in a folder of their own: no port, no network.
struct Stores {
    dir: tempfile::TempDir,
    postgres: Child,
    redis: Option<Child>,
}

pub fn newest_postgres() -> PathBuf {
    let found = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|e| e.path().join("bin"));
    let mut found: Vec<PathBuf> = found.filter(|bin| bin.join("postgres").exists()).collect();
    found.sort();
    found.pop().expect("PostgreSQL is not installed; scripts/setup installs it")
}

/// A fresh database cluster in `data`, as [`as_nobody`] has to run it.
pub fn initdb(data: &Path, cwd: &Path) {
    let made = as_nobody(&newest_postgres().join("initdb"))
        .args(["-A", "trust", "-U", "halfopen", "--no-sync", "--locale=C", "-E", "UTF8", "-D"])
        .arg(data)
        .current_dir(cwd)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

pub fn as_nobody(program: &Path) -> Command {
    let id = NOBODY.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]).arg(program);
    command
}

pub fn within(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < limit {
        if is_so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

impl Stores {
    fn start() -> Self {
        require_root();
        let dir = tempfile::tempdir().unwrap();
        chown(dir.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        let (bin, data) = (newest_postgres(), dir.path().join("data"));
        initdb(&data, dir.path());
        let postgres = as_nobody(&bin.join("postgres"))
            .args(["-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=30", "-k"])
            .arg(dir.path())
            .arg("-D")
            .arg(&data)
            .current_dir(dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut stores = Self { dir, postgres, redis: None };
        stores.start_redis();
        assert!(within(Duration::from_secs(30), || stores
            .psql()
            .args(["-c", "SELECT 1"])
            .output()
            .unwrap()
            .status
            .success()));
        stores
    }

    fn start_redis(&mut self) {
        let socket = self.dir.path().join("redis.sock");
        let redis = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--unixsocket"])
            .arg(&socket)
            .arg("--dir")
            .arg(self.dir.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        self.redis = Some(redis);
        assert!(within(Duration::from_secs(10), || self.redis(&["PING"]) == "PONG"));
    }

    fn stop_redis(&mut self) {
        if let Some(mut redis) = self.redis.take() {
            redis.kill().unwrap();
            redis.wait().unwrap();
        }
    }

    fn redis(&self, words: &[&str]) -> String {
        let output =
            Command::new("redis-cli").arg("-s").arg(self.dir.path().join("redis.sock")).args(words).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    }

    /// A worker's sign of life. Its own clock says `skew_s` too much: nobody may care.
    fn breathes(&self, worker: &str, skew_s: i64) {
        let said = 1_796_041_740 + skew_s;
        let value = format!(
            "{{\"worker_id\":\"{worker}\",\"last_heartbeat_at\":{said},\"current_task_id\":null,\"status\":\"busy\"}}"
        );
        assert_eq!(self.redis(&["SET", &format!("worker:{worker}"), &value, "EX", "90"]), "OK");
    }

    fn psql(&self) -> Command {
        let mut psql = Command::new("psql");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "halfopen", "-d", "postgres", "-h"])
            .arg(self.dir.path());
        psql
    }

    fn sql(&self, text: &str) -> String {
        let output = self.psql().args(["-c", text]).output().unwrap();
        assert!(output.status.success(), "{text}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    }

    /// A table whose states are an enumeration and whose times have a zone.
    fn make_table(&self) {
        self.sql(
            "CREATE TYPE state AS ENUM ('PENDING', 'PROCESSING', 'DONE', 'FAILED'); \
             CREATE TABLE task (id bigint PRIMARY KEY, status state NOT NULL, worker_id text, error_code varchar(20), \
             updated_at timestamptz NOT NULL, changes int NOT NULL DEFAULT 0); \
             CREATE FUNCTION counted() RETURNS trigger AS $$ BEGIN NEW.changes := OLD.changes + 1; RETURN NEW; END $$ \
             LANGUAGE plpgsql; \
             CREATE TRIGGER counts BEFORE UPDATE ON task FOR EACH ROW EXECUTE FUNCTION counted()",
        );
    }

    fn task(&self, id: i64, status: &str, worker: Option<&str>, age_s: i64) {
        let worker = worker.map_or("NULL".to_string(), |w| format!("'{w}'"));
        self.sql(&format!("INSERT INTO task VALUES ({id}, '{status}', {worker}, NULL, now() - interval '{age_s} s')"));
    }

    fn config(&self, liveness: &str, limits: &str) -> PathBuf {
        let (path, dir) = (self.dir.path().join("reap.toml"), self.dir.path().display());
        let redis = format!("store = \"redis\"\naddress = \"redis+unix://{dir}/redis.sock\"\n");
        let liveness = if liveness == "redis" { &redis } else { liveness };
        let text = format!(
            "[tasks]\naddress = \"host={dir} user=halfopen dbname=postgres\"\n[liveness]\n{liveness}\n[limits]\n{limits}\n"
        );
        std::fs::write(&path, text).unwrap();
        path
    }

    fn reap(&self, config: &Path, args: &[&str]) -> Output {
        Command::new(binary()).arg("reap").arg(config).args(args).output().unwrap()
    }

    /// The exit code, and the rows with what was done to them.
    fn swept(&self, config: &Path, args: &[&str]) -> (Option<i32>, Value, Vec<(String, String, String)>) {
        let output = self.reap(config, &[&["--json"], args].concat());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let report: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text} {output:?}"));
        let word = |row: &Value, key: &str| row[key].as_str().unwrap().to_string();
        let doomed = report["doomed"].as_array().unwrap();
        let mut rows: Vec<_> = doomed.iter().map(|r| (word(r, "id"), word(r, "rule"), word(r, "deed"))).collect();
        rows.sort();
        (output.status.code(), report, rows)
    }
}

impl Drop for Stores {
    fn drop(&mut self) {
        self.stop_redis();
        // SIGINT is PostgreSQL's fast shutdown; its children go with it.
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.postgres.id()).unwrap_or(0));
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT);
        let _ = self.postgres.wait();
    }
}

fn rows(list: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
    list.iter().map(|(a, b, c)| (a.to_string(), b.to_string(), c.to_string())).collect()
}

#[test]
fn the_rule_on_real_stores_dry_and_in_earnest() {
    let stores = Stores::start();
    stores.make_table();
    for (id, status, worker, age_s) in [
        (1, "PENDING", None, 310),
        (2, "PENDING", None, 290),
        (3, "PROCESSING", Some("gone"), 1),
        (4, "PROCESSING", Some("alive"), 1080),
        (5, "PROCESSING", Some("alive"), 1210),
        (6, "PROCESSING", None, 1190),
        (7, "PROCESSING", None, 1210),
        (8, "DONE", Some("gone"), 9000),
        // Changed in the database's future: not old.
        (9, "PENDING", None, -300),
    ] {
        stores.task(id, status, worker, age_s);
    }
    // Five minutes off either way: the key's presence counts, its words don't.
    stores.breathes("alive", -300);
    stores.breathes("ahead", 300);
    let config = stores.config("redis", "max_share = 1.0");
    let of = |deed| {
        rows(&[
            ("1", "pending_timeout", deed),
            ("3", "liveness_ttl", deed),
            ("5", "processing_timeout", deed),
            ("7", "processing_timeout", deed),
        ])
    };
    let before = stores.sql("SELECT * FROM task ORDER BY id");
    let (code, report, dry) = stores.swept(&config, &[]);
    assert_eq!((code, dry), (Some(0), of("would_fail")));
    assert_eq!(
        (&report["workers_alive"], &report["workers_gone"], &report["pending"]),
        (&1.into(), &1.into(), &3.into())
    );
    assert_eq!(stores.sql("SELECT * FROM task ORDER BY id"), before, "a dry run changes nothing");

    let (code, _, done) = stores.swept(&config, &["--act"]);
    assert_eq!((code, done), (Some(0), of("failed")));
    let failed = stores.sql("SELECT id FROM task WHERE status = 'FAILED' AND error_code = 'TIMEOUT' AND updated_at > now() - interval '1 min' ORDER BY id");
    assert_eq!(failed.split_whitespace().collect::<Vec<_>>(), ["1", "3", "5", "7"]);
    let (_, _, again) = stores.swept(&config, &["--act"]);
    assert_eq!(again, []);

    // Times without a zone are UTC, whatever zone the server believes to be in; liveness by a table, by its own clock.
    stores.sql(
        "ALTER DATABASE postgres SET timezone TO 'Asia/Tokyo'; DROP TABLE task; \
         CREATE TABLE task (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), status text, worker_id text, \
         error_code text, updated_at timestamp); \
         CREATE TABLE worker_status (worker_id text PRIMARY KEY, last_heartbeat_at timestamptz, current_task_id text, status text)",
    );
    stores.sql(
        "INSERT INTO worker_status VALUES ('fresh', now() - interval '80 s', NULL, 'busy'), ('stale', now() - interval '100 s', NULL, 'busy'); \
         INSERT INTO task (status, worker_id, updated_at) VALUES \
         ('PENDING', NULL, (now() AT TIME ZONE 'UTC') - interval '290 s'), ('PENDING', NULL, (now() AT TIME ZONE 'UTC') - interval '310 s'), \
         ('PROCESSING', 'fresh', now() AT TIME ZONE 'UTC'), ('PROCESSING', 'stale', now() AT TIME ZONE 'UTC'), \
         ('PROCESSING', 'never', now() AT TIME ZONE 'UTC')",
    );
    let config = stores.config("store = \"postgres\"\nttl = \"90s\"", "max_share = 1.0");
    let (code, report, done) = stores.swept(&config, &["--act"]);
    let rules: Vec<&str> = done.iter().map(|(_, rule, _)| rule.as_str()).collect();
    assert_eq!((code, rules.len()), (Some(0), 3), "{report}");
    assert_eq!(rules.iter().filter(|rule| **rule == "liveness_ttl").count(), 2, "{report}");
    assert_eq!(
        stores.sql("SELECT status, worker_id FROM task WHERE status <> 'FAILED' ORDER BY 1"),
        "PENDING|\nPROCESSING|fresh"
    );
}

#[test]
fn who_finishes_while_he_is_reaped_is_not_overwritten_and_two_reapers_act_once() {
    let stores = Stores::start();
    stores.make_table();
    let config = stores.config("store = \"none\"", "max_share = 1.0\nmax_fail = 1000");
    // The worker's commit comes between the reaper's look and its act: the row is locked until then.
    stores.task(1, "PROCESSING", Some("w"), 2000);
    let mut worker = stores.psql().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = worker.stdin.take().unwrap();
    input
        .write_all(b"BEGIN; UPDATE task SET status = 'DONE' WHERE id = 1 AND status = 'PROCESSING'; SELECT 'locked';\n")
        .unwrap();
    let mut said = String::new();
    BufReader::new(worker.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said.trim(), "locked");
    let mut reaper = Command::new(binary());
    let reaper = reaper.arg("reap").arg(&config).args(["--act", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let waits =
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'halfopen reap' AND wait_event_type = 'Lock'";
    assert!(within(Duration::from_secs(9), || stores.sql(waits) == "1"), "the reaper never came to the locked row");
    input.write_all(b"COMMIT;\n").unwrap();
    drop(input);
    worker.wait().unwrap();
    let report: Value = serde_json::from_slice(&reaper.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(report["doomed"][0]["deed"], "changed_meanwhile");
    assert_eq!(stores.sql("SELECT status, error_code FROM task"), "DONE|");
    // The other order: the reaper was first, and the worker's own condition finds nothing to change.
    stores.task(2, "PROCESSING", Some("w"), 2000);
    assert_eq!(stores.swept(&config, &["--act"]).2, rows(&[("2", "processing_timeout", "failed")]));
    stores.sql("UPDATE task SET status = 'DONE' WHERE id = 2 AND status = 'PROCESSING'");
    assert_eq!(stores.sql("SELECT status, error_code FROM task WHERE id = 2"), "FAILED|TIMEOUT");

    stores.sql("TRUNCATE task; INSERT INTO task SELECT n, 'PENDING', NULL, NULL, now() - interval '1 h' FROM generate_series(1, 300) n");
    let start = || {
        Command::new(binary())
            .arg("reap")
            .arg(&config)
            .args(["--act", "--json"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let pair = [start(), start()];
    let failed: usize = pair
        .into_iter()
        .map(|reaper| {
            let report: Value = serde_json::from_slice(&reaper.wait_with_output().unwrap().stdout).unwrap();
            report["doomed"].as_array().unwrap().iter().filter(|row| row["deed"] == "failed").count()
        })
        .sum();
    assert_eq!(failed, 300, "each row by one of them");
    assert_eq!(stores.sql("SELECT min(changes), max(changes), count(*) FROM task WHERE status = 'FAILED'"), "1|1|300");
}

#[test]
fn it_brakes_keeps_its_head_without_redis_and_ends_in_order() {
    let mut stores = Stores::start();
    stores.make_table();
    for id in 1..=10 {
        stores.task(id, "PROCESSING", Some(if id <= 3 { "dead" } else { "well" }), 1);
    }
    stores.breathes("well", 0);
    let config = stores.config("redis", "sweep = \"200ms\"");
    let held = rows(&[
        ("1", "liveness_ttl", "held_back"),
        ("2", "liveness_ttl", "held_back"),
        ("3", "liveness_ttl", "held_back"),
    ]);
    let (code, report, done) = stores.swept(&config, &["--act"]);
    assert_eq!((code, &report["stopped_by"], done), (Some(1), &"max_share".into(), held.clone()));
    let (code, report, _) = stores.swept(&config, &["--act", "--max-fail", "2"]);
    assert_eq!((code, &report["stopped_by"]), (Some(1), &"max_fail".into()));
    stores.redis(&["FLUSHALL"]);
    let (code, report, _) = stores.swept(&config, &["--act", "--max-fail", "100"]);
    assert_eq!((code, &report["stopped_by"]), (Some(1), &"every_worker_gone".into()));
    assert_eq!(stores.sql("SELECT count(*) FROM task WHERE status = 'FAILED'"), "0");
    // A store that is down says nothing of the workers.
    stores.stop_redis();
    let (code, report, done) = stores.swept(&config, &["--act"]);
    assert_eq!((code, &report["workers_unknown"], done), (Some(0), &2.into(), vec![]));
    assert!(report["doubts"][0].as_str().unwrap().contains("age alone decides"), "{report}");
    stores.start_redis();
    stores.breathes("well", 0);
    stores.breathes("dead", 0);

    let metrics = stores.dir.path().join("reap.prom");
    let mut reaper = Command::new(binary());
    reaper
        .arg("reap")
        .arg(&config)
        .args(["--act", "--loop", "--metrics-listen", "127.0.0.1:39464", "--metrics-file"])
        .arg(&metrics);
    let mut reaper = reaper.stdout(Stdio::null()).spawn().unwrap();
    let sweeps = |text: &str| -> u64 {
        let line = text.lines().find(|l| l.starts_with("halfopen_reap_sweeps_total "));
        line.and_then(|l| l.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
    };
    let file = || std::fs::read_to_string(&metrics).unwrap_or_default();
    assert!(within(Duration::from_secs(20), || sweeps(&file()) >= 3), "{}", file());
    stores.task(11, "PENDING", None, 400);
    assert!(
        within(Duration::from_secs(10), || file().contains("halfopen_reap_failed_total{rule=\"pending_timeout\"} 1\n")),
        "{}",
        file()
    );
    let mut stream = TcpStream::connect("127.0.0.1:39464").unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200 OK") && answer.contains("halfopen_reap_workers{state=\"alive\"} 2\n"),
        "{answer}"
    );
    let pid = nix::unistd::Pid::from_raw(i32::try_from(reaper.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(reaper.wait().unwrap().code(), Some(0));

    // What is wrong is said with its key, and how to mend it.
    let bad = stores.config("store = \"none\"", "");
    let text = std::fs::read_to_string(&bad).unwrap();
    std::fs::write(&bad, text.replace("[liveness]", "updated_at = \"changed\"\n[liveness]")).unwrap();
    let output = stores.reap(&bad, &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    let written = std::fs::read_to_string(&bad).unwrap();
    let line = written.lines().position(|line| line.starts_with("updated_at")).unwrap() + 1;
    assert!(said.contains(&format!("{}:{line}:1: tasks.updated_at", bad.display())), "{said}");
    assert!(said.contains("no column `changed`; it has changes, error_code"), "{said}");
    let output = stores.reap(&stores.dir.path().join("none.toml"), &[]);
    assert_eq!(output.status.code(), Some(2));
    std::fs::write(&bad, text.replace("user=halfopen", "user=halfopen port=1")).unwrap();
    assert_eq!(stores.reap(&bad, &[]).status.code(), Some(3));
}

#[test]
fn a_runs_task_store_keeps_its_word_on_postgres_too() {
    let stores = Stores::start();
    let place = Place::Postgres(stores.dir.path().to_path_buf());
    let mut store = TaskStore::create(&place).unwrap();
    let other = TaskStore::open(&place).unwrap();
    let id = |message| TaskId { trial: 3, message };
    for message in 0..5 {
        assert!(store.queue(id(message), Offset(10)).unwrap());
    }
    let rows = store.queued_before(Offset(11)).unwrap();
    assert_eq!(rows.len(), 5);
    // Begun, and begun and finished, between the reaper's look and its act.
    assert!(other.begin(id(1), "w", Offset(20)).unwrap());
    assert!(other.begin(id(2), "w", Offset(20)).unwrap() && other.finish(id(2), "w", Offset(30)).unwrap());
    assert!(!store.begin(id(1), "v", Offset(21)).unwrap() && !store.finish(id(1), "v", Offset(22)).unwrap());
    let actions: Vec<Action> = rows.iter().map(|row| Action::Fail { id: row.id, retry_at: None }).collect();
    assert_eq!(store.act(&actions[..3], Offset(40)).unwrap(), [true, false, false]);
    assert_eq!(store.act(&actions[..3], Offset(41)).unwrap(), [false, false, false], "a second reaper does nothing");
    assert!(!other.begin(id(0), "w", Offset(42)).unwrap(), "what was failed is not worked on");
    assert_eq!(store.act(&[Action::Requeue(id(3))], Offset(50)).unwrap(), [true]);
    assert_eq!(store.get(id(3)).unwrap().map(|t| (t.queued_at, t.attempts)), Some((Offset(50), 2)));
    // By the rule that looks at running rows: the worker is first, then the reaper is.
    let running = |message| store.active().unwrap().into_iter().find(|task| task.id == id(message)).unwrap();
    let seen = running(1);
    assert_eq!((seen.status, seen.worker_id.as_deref()), (Status::Processing, Some("w")));
    assert!(other.finish(id(1), "w", Offset(60)).unwrap());
    assert!(!store.fail(&seen, Offset(61), None).unwrap(), "it was finished while it was being reaped");
    assert!(other.begin(id(4), "w", Offset(62)).unwrap());
    let seen = running(4);
    assert!(store.fail(&seen, Offset(70), Some(Offset(80))).unwrap() && !other.fail(&seen, Offset(70), None).unwrap());
    assert!(!other.finish(id(4), "w", Offset(71)).unwrap(), "it was failed while it was being finished");
    let of = |message| store.get(id(message)).unwrap().unwrap();
    assert_eq!(
        [of(0), of(1), of(2), of(4)].map(|task| task.status),
        [Status::Failed, Status::Done, Status::Done, Status::Failed]
    );
    assert_eq!(of(4).error_code.as_deref(), Some("TIMEOUT"));
    // Its own retry, once, and a heartbeat that saves it from the second failing.
    assert_eq!((store.next_retry().unwrap(), store.due_again(Offset(79)).unwrap()), (Some(Offset(80)), Vec::new()));
    assert_eq!(store.due_again(Offset(80)).unwrap(), [id(4)]);
    assert!(store.try_again(id(4), Offset(80)).unwrap() && !other.try_again(id(4), Offset(80)).unwrap());
    assert!(other.begin(id(4), "v", Offset(81)).unwrap());
    let seen = running(4);
    assert_eq!((seen.tries, seen.heartbeat_at), (2, None));
    assert!(other.beat_for(id(4), "v", Offset(82)).unwrap() && !other.beat_for(id(4), "w", Offset(82)).unwrap());
    assert!(!store.fail(&seen, Offset(83), None).unwrap(), "its worker gave a sign meanwhile");
    // The age of a sign of life is the server's, whatever the worker's clock says.
    other.beat("w", Some(id(4)), Offset(80), Offset(-300_000_000_000)).unwrap();
    other.beat("w", None, Offset(90), Offset(-299_000_000_000)).unwrap();
    let beat = store.beats(Offset(0)).unwrap()["w"];
    assert_eq!(beat.said, Offset(-299_000_000_000));
    assert!(beat.age < Duration::from_secs(60), "{beat:?}");
    assert!(TaskStore::create(&place).unwrap_err().to_string().contains("make the table"));
}

#[test]
fn killed_at_any_moment_it_leaves_whole_rows_and_the_next_one_goes_on() {
    let stores = Stores::start();
    stores.make_table();
    let config = stores.config("store = \"none\"", "max_share = 1.0\nmax_fail = 1000");
    let fill = "TRUNCATE task; \
                INSERT INTO task SELECT n, 'PENDING', NULL, NULL, now() - interval '1 h' FROM generate_series(1, 200) n";
    let whole = "SELECT count(*) FILTER (WHERE status = 'FAILED' AND error_code = 'TIMEOUT' AND changes = 1), \
                 count(*) FILTER (WHERE status = 'PENDING' AND error_code IS NULL AND changes = 0) FROM task";
    let mut in_between = 0;
    for moment in 0..20 {
        stores.sql(fill);
        let mut reaper = Command::new(binary());
        let mut reaper =
            reaper.arg("reap").arg(&config).args(["--act", "--json"]).stdout(Stdio::null()).spawn().unwrap();
        // Not a wait for anything: this is the moment of the kill, somewhere in its life.
        std::thread::sleep(Duration::from_millis(12 * moment));
        reaper.kill().unwrap();
        reaper.wait().unwrap();
        // A statement that the server had already been handed is carried out, and is whole.
        let gone = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'halfopen reap'";
        assert!(within(Duration::from_secs(10), || stores.sql(gone) == "0"), "its session lives on");
        let (failed, left) = stores.sql(whole).split_once('|').map(|(a, b)| (a.to_string(), b.to_string())).unwrap();
        let (failed, left): (u32, u32) = (failed.parse().unwrap(), left.parse().unwrap());
        assert_eq!(failed + left, 200, "killed after {} ms", 12 * moment);
        in_between += u32::from(failed > 0 && left > 0);
        assert_eq!(stores.swept(&config, &["--act"]).2.len(), usize::try_from(left).unwrap());
        assert_eq!(stores.sql(whole), "200|0");
    }
    assert!(in_between > 0, "no kill fell into the work; the moments are chosen badly");
}

#[test]
fn a_sweep_that_breaks_off_says_what_it_has_done() {
    let stores = Stores::start();
    stores.make_table();
    let config = stores.config("store = \"none\"", "max_share = 1.0");
    for (id, age_s) in [(1, 7_200), (2, 3_600), (3, 1_800)] {
        stores.task(id, "PENDING", None, age_s);
    }
    // Somebody else holds the second one, for longer than anybody waits.
    let mut holder = stores.psql();
    holder.args(["-c", "BEGIN; SELECT 1 FROM task WHERE id = 2 FOR UPDATE; SELECT pg_sleep(600)"]);
    let mut holder = holder.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let held = "FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    assert!(within(Duration::from_secs(10), || stores.sql(&format!("SELECT count(*) {held}")) == "1"), "not held");
    let (code, report, told) = stores.swept(&config, &["--act"]);
    let rule = "pending_timeout";
    assert_eq!(told, rows(&[("1", rule, "failed"), ("2", rule, "not_known"), ("3", rule, "not_done")]));
    assert_eq!(code, Some(5), "{report}");
    assert!(report["broke_off"].as_str().is_some_and(|why| why.contains("row 2")), "{report}");
    assert_eq!(stores.sql("SELECT string_agg(status::text, ',' ORDER BY id) FROM task"), "FAILED,PENDING,PENDING");
    // Nobody waits for the lock any more, who would fail the row whenever it is let go.
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'halfopen reap'";
    assert!(within(Duration::from_secs(10), || stores.sql(waits) == "0"), "its statement lives on");
    assert!(report["broke_off"].as_str().is_some_and(|why| why.contains("asked to cancel")), "{report}");
    stores.sql(&format!("SELECT pg_terminate_backend(pid) {held}"));
    holder.wait().unwrap();
    assert_eq!(stores.sql("SELECT status FROM task WHERE id = 2"), "PENDING");
    // Nothing of it stands in the way of the next one.
    // A time that never was is no age, and holds nobody up.
    stores
        .sql("INSERT INTO task VALUES (4, 'PENDING', NULL, NULL, '-infinity'), (5, 'PENDING', NULL, NULL, 'infinity')");
    let (code, _, _) = stores.swept(&config, &["--act"]);
    assert_eq!(code, Some(0));
    assert_eq!(stores.sql("SELECT count(*) FROM task WHERE status = 'FAILED' AND changes = 1"), "3");
    assert_eq!(stores.sql("SELECT count(*) FROM task WHERE status = 'PENDING'"), "2");
}

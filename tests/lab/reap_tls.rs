//! `halfopen reap` over TLS: a real PostgreSQL and a real Redis with certificates of this test's own, in a network of its own.

use crate::common::{binary, require_root};
use crate::reap::{NOBODY, as_nobody, initdb, newest_postgres, within};
use halfopen::host::netlink::loopback_up;
use halfopen::host::netns::NetNs;
use halfopen::lab::Certificates;
use std::net::Ipv4Addr;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// Who may come in: over the network encrypted or not at all.
const HBA: &str = "local all all trust\nhostssl all all 127.0.0.1/32 trust\n";

struct Servers {
    ns: NetNs,
    dir: tempfile::TempDir,
    files: Certificates,
    /// Another authority's, which signed nothing here.
    other: Certificates,
    postgres: Child,
    redis: Child,
}

impl Servers {
    fn start() -> Self {
        require_root();
        let dir = tempfile::tempdir().unwrap();
        let ns = NetNs::create("reap").unwrap();
        loopback_up(&ns).unwrap();
        let (own, elsewhere) = (dir.path().join("own"), dir.path().join("other"));
        let files = Certificates::make(&own, &[Ipv4Addr::LOCALHOST], "halfopen.test").unwrap();
        let other = Certificates::make(&elsewhere, &[Ipv4Addr::LOCALHOST], "halfopen.test").unwrap();
        let data = dir.path().join("data");
        let mine: [&Path; 5] = [dir.path(), &own, &own.join("tls"), &files.key, &files.certificate];
        mine.iter().for_each(|path| chown(path, Some(NOBODY), Some(NOBODY)).unwrap());
        let bin = newest_postgres();
        initdb(&data, dir.path());
        std::fs::write(data.join("pg_hba.conf"), HBA).unwrap();
        let (certificate, key) = (files.certificate.display(), files.key.display());
        let configured = format!("ssl = on\nssl_cert_file = '{certificate}'\nssl_key_file = '{key}'\n");
        std::fs::write(data.join("postgresql.auto.conf"), configured).unwrap();
        let mut postgres = as_nobody(&bin.join("postgres"));
        postgres.args(["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "max_connections=30"]);
        postgres.arg("-k").arg(dir.path()).arg("-D").arg(&data).current_dir(dir.path());
        postgres.stdout(Stdio::null()).stderr(Stdio::null());
        let mut redis = Command::new("redis-server");
        redis.args(["--port", "0", "--tls-port", "6380", "--save", "", "--tls-auth-clients", "no"]);
        redis.arg("--tls-cert-file").arg(&files.certificate).arg("--tls-key-file").arg(&files.key);
        redis.arg("--tls-ca-cert-file").arg(&files.ca).arg("--dir").arg(dir.path()).stdout(Stdio::null());
        let (postgres, redis) = ns.run(|| Ok((postgres.spawn()?, redis.spawn()?))).unwrap();
        let servers = Self { ns, dir, files, other, postgres, redis };
        assert!(within(Duration::from_secs(30), || servers.psql("SELECT 1").status.success()));
        assert!(within(Duration::from_secs(10), || servers.redis(&["PING"]) == "PONG"));
        servers
    }

    fn psql(&self, text: &str) -> Output {
        let mut psql = Command::new("psql");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "halfopen", "-d", "postgres", "-h"]);
        psql.arg(self.dir.path()).args(["-c", text]).output().unwrap()
    }

    fn sql(&self, text: &str) -> String {
        let output = self.psql(text);
        assert!(output.status.success(), "{text}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    }

    fn redis(&self, words: &[&str]) -> String {
        let mut cli = Command::new("redis-cli");
        cli.args(["-h", "127.0.0.1", "-p", "6380", "--tls", "--cacert"]).arg(&self.files.ca).args(words);
        String::from_utf8_lossy(&self.ns.run(|| cli.output()).unwrap().stdout).trim().to_string()
    }

    /// The exit code of a sweep, and what it said on each stream.
    fn reap(&self, address: &str, liveness: &str, args: &[&str]) -> (Option<i32>, String, String) {
        let path = self.dir.path().join("reap.toml");
        let text = format!(
            "[tasks]\naddress = \"{address}\"\n[liveness]\n{liveness}\n[limits]\nmax_share = 1.0\nmax_fail = 1000\n"
        );
        std::fs::write(&path, text).unwrap();
        let mut command = Command::new(binary());
        command.arg("reap").arg(&path).args(args);
        let output = self.ns.run(|| command.output()).unwrap();
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
        (output.status.code(), said(&output.stdout), said(&output.stderr))
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        let _ = self.redis.kill();
        let _ = self.redis.wait();
        // SIGINT is PostgreSQL's fast shutdown; its children go with it.
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.postgres.id()).unwrap_or(0));
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT);
        let _ = self.postgres.wait();
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn a_database_behind_tls_is_reaped_and_a_server_that_is_not_meant_is_refused() {
    let servers = Servers::start();
    servers.sql(
        "CREATE TABLE task (id bigint PRIMARY KEY, status text NOT NULL, worker_id text, error_code text, \
         updated_at timestamptz NOT NULL, encrypted bool); \
         CREATE FUNCTION seen() RETURNS trigger AS $$ BEGIN \
         NEW.encrypted := (SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()); RETURN NEW; END $$ LANGUAGE plpgsql; \
         CREATE TRIGGER sees BEFORE UPDATE ON task FOR EACH ROW EXECUTE FUNCTION seen()",
    );
    let (ca, other, gone) = (shown(&servers.files.ca), shown(&servers.other.ca), "store = \"none\"");
    let base = "host=127.0.0.1 user=halfopen dbname=postgres";
    let url = |more: &str| format!("postgresql://halfopen@127.0.0.1/postgres?{more}");
    let localhost = base.replace("127.0.0.1", "localhost");
    // What lets it in, and over what.
    let good = [
        base.to_string(),
        format!("{base} sslmode=require"),
        format!("{base} sslmode=require sslrootcert={ca}"),
        format!("{base} sslmode=verify-full sslrootcert={ca}"),
        url(&format!("sslmode=verify-full&sslrootcert={}", ca.replace('/', "%2F"))),
        // The certificate names no such host, and is not asked whether it does.
        format!("{localhost} sslmode=verify-ca sslrootcert={ca}"),
    ];
    for (number, address) in good.iter().enumerate() {
        servers.sql(&format!("INSERT INTO task VALUES ({number}, 'PENDING', NULL, NULL, now() - interval '1 h')"));
        let (code, said, error) = servers.reap(address, gone, &["--act"]);
        assert_eq!(code, Some(0), "{address}: {said}{error}");
        let row = servers.sql(&format!("SELECT status, encrypted FROM task WHERE id = {number}"));
        assert_eq!(row, "FAILED|t", "{address}");
    }
    // The socket file is never encrypted, whatever is asked for.
    let local = format!("host={} user=halfopen dbname=postgres sslmode=require", servers.dir.path().display());
    assert_eq!(servers.reap(&local, gone, &[]).0, Some(0));

    let refused = |address: &str, code: i32, words: &[&str]| {
        let (found, said, error) = servers.reap(address, gone, &[]);
        assert_eq!((found, said.as_str(), error.lines().count()), (Some(code), "", 1), "{address}: {error}");
        assert!(words.iter().all(|word| error.contains(word)), "{address}: {error}");
    };
    refused(
        &format!("{base} sslmode=verify-full sslrootcert={other}"),
        3,
        &["can't reach PostgreSQL", "refused", "not of an authority in", &other],
    );
    refused(&format!("{base} sslmode=require sslrootcert={other}"), 3, &["not of an authority in", &other]);
    refused(
        &format!("{localhost} sslmode=verify-full sslrootcert={ca}"),
        3,
        &["localhost", "by a name that its certificate"],
    );
    refused(&format!("{base} sslmode=verify-full"), 2, &["tasks.address", "sslrootcert=/path/to/ca.pem"]);
    refused(&format!("{base} sslmode=verify-full sslrootcert=/nonexistent/ca.pem"), 2, &["/nonexistent/ca.pem"]);
    // The server's own words: it lets nobody in who is not encrypted.
    refused(&format!("{base} sslmode=disable"), 3, &["no encryption"]);
    servers.sql("ALTER SYSTEM SET ssl = off");
    servers.sql("SELECT pg_reload_conf()");
    let without = format!("{base} sslmode=require");
    assert!(within(Duration::from_secs(10), || servers.reap(&without, gone, &[]).2.contains("does not offer TLS")));
    refused(&without, 3, &["ssl = on", "sslmode=disable"]);
}

#[test]
fn workers_are_asked_for_behind_tls() {
    let servers = Servers::start();
    servers.sql(
        "CREATE TABLE task (id bigint PRIMARY KEY, status text, worker_id text, error_code text, updated_at timestamptz); \
         INSERT INTO task VALUES (1, 'PROCESSING', 'here', NULL, now()), (2, 'PROCESSING', 'gone', NULL, now())",
    );
    assert_eq!(servers.redis(&["SET", "worker:here", "{}", "EX", "90"]), "OK");
    let address = format!("host={} user=halfopen dbname=postgres", servers.dir.path().display());
    let redis = |more: &str| format!("store = \"redis\"\naddress = \"rediss://127.0.0.1:6380/0\"\n{more}");
    let (ca, other) = (shown(&servers.files.ca), shown(&servers.other.ca));
    let (code, said, error) = servers.reap(&address, &redis(&format!("ca = \"{ca}\"")), &[]);
    assert_eq!(code, Some(0), "{error}");
    assert!(said.contains("workers: 1 alive, 1 gone") && said.contains("would fail: 2"), "{said}");
    // A server that is not the one that was meant says nothing about who lives: age alone decides, and the sweep says so.
    for (more, words) in [
        (format!("ca = \"{other}\""), format!("not of an authority in {other}")),
        (String::new(), "the system's list of authorities".to_string()),
    ] {
        let (code, said, error) = servers.reap(&address, &redis(&more), &[]);
        assert!(code == Some(0) && said.contains("age alone decides") && said.contains(&words), "{said}{error}");
        assert!(said.contains("nothing to fail"), "{said}");
    }
    let (code, _, error) = servers.reap(&address, &redis("ca = \"/nonexistent/ca.pem\""), &[]);
    assert!(code == Some(2) && error.contains("liveness.ca") && error.contains("/nonexistent/ca.pem"), "{error}");
}

//! Real files, changed by writes, renames, links and removal. The tests do not sleep: each step waits for its
//! reload.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use plimsoll_core::names::Bucket;
use plimsoll_core::quantity::Limit;
use tempfile::TempDir;
use tokio::time::timeout;

use super::*;

/// Far more than any step takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Watched {
    dir: TempDir,
    reloads: mpsc::Receiver<Reload>,
}

fn policy(limit: u32) -> String {
    format!("buckets: {{ b: {{ limit: {limit} }} }}\n")
}

fn limit_of(policy: &Policy) -> f64 {
    match policy.bucket(&Bucket::new("b").unwrap()).unwrap().limit() {
        Limit::PerSecond(rate) => rate.per_second(),
        other => panic!("{other:?}"),
    }
}

/// Writes a second file in the same directory and renames over it, so that no reader sees half of
/// it.
fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    fs::write(&beside, text).unwrap();
    fs::rename(beside, path).unwrap();
}

impl Watched {
    /// Watches `policy.yaml` and, if `tenants`, `tenants.yaml` in a directory that `prepare` has filled.
    fn start(tenants: bool, prepare: impl FnOnce(&Path)) -> Self {
        let dir = TempDir::new().unwrap();
        prepare(dir.path());
        let files = PolicyFiles {
            policy: dir.path().join("policy.yaml"),
            tenants: tenants.then(|| dir.path().join("tenants.yaml")),
            catalogue: None,
        };
        let (tx, reloads) = mpsc::channel(1);
        tokio::spawn(files.watch(None, || (), tx));
        Self { dir, reloads }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    async fn next(&mut self) -> Reload {
        timeout(PATIENCE, self.reloads.recv())
            .await
            .expect("no reload")
            .expect("watching ended")
    }

    async fn accepted(&mut self, limit: f64) -> Arc<Policy> {
        match self.next().await {
            Ok((policy, _)) => {
                assert_eq!(limit_of(&policy), limit);
                policy
            }
            Err(error) => panic!("{error}"),
        }
    }

    async fn refused(&mut self, words: &str) -> ReadError {
        match self.next().await {
            Err(error) => {
                assert!(error.to_string().contains(words), "{error}");
                error
            }
            Ok((policy, _)) => panic!("{policy:?}"),
        }
    }
}

#[tokio::test]
async fn file_written_in_place_is_reloaded() {
    let mut watched = Watched::start(false, |dir| {
        fs::write(dir.join("policy.yaml"), policy(1)).unwrap()
    });
    watched.accepted(1.0).await;
    fs::write(watched.path("policy.yaml"), policy(2)).unwrap();
    // Between truncating and writing, the file may be found empty.
    loop {
        match watched.next().await {
            Ok((policy, _)) => break assert_eq!(limit_of(&policy), 2.0),
            Err(error) => assert!(error.to_string().contains("empty"), "{error}"),
        }
    }
}

#[tokio::test]
async fn renamed_policy_file_is_always_reloaded() {
    let mut watched = Watched::start(false, |dir| {
        fs::write(dir.join("policy.yaml"), policy(1)).unwrap()
    });
    watched.accepted(1.0).await;
    for limit in 2..6 {
        replace(&watched.path("policy.yaml"), &policy(limit));
        watched.accepted(f64::from(limit)).await;
    }
}

#[tokio::test]
async fn swapped_config_map_is_reloaded() {
    let version = |dir: &Path, name: &str, limit: u32, weight: u32| {
        let data = dir.join(name);
        fs::create_dir(&data).unwrap();
        fs::write(data.join("policy.yaml"), policy(limit)).unwrap();
        fs::write(
            data.join("tenants.yaml"),
            format!("tenants: {{ default: {{ weight: {weight} }} }}"),
        )
        .unwrap();
    };
    let mut watched = Watched::start(true, |dir| {
        version(dir, "..1", 1, 1);
        symlink("..1", dir.join("..data")).unwrap();
        for name in ["policy.yaml", "tenants.yaml"] {
            symlink(Path::new("..data").join(name), dir.join(name)).unwrap();
        }
    });
    watched.accepted(1.0).await;
    for n in 2..5_u32 {
        version(watched.dir.path(), &format!("..{n}"), n, n);
        symlink(format!("..{n}"), watched.path("..data_tmp")).unwrap();
        fs::rename(watched.path("..data_tmp"), watched.path("..data")).unwrap();
        fs::remove_dir_all(watched.path(&format!("..{}", n - 1))).unwrap();
        let policy = watched.accepted(f64::from(n)).await;
        assert_eq!(
            policy.tenants().next().unwrap().1.weight.get(),
            f64::from(n)
        );
    }
}

#[tokio::test]
async fn linked_policy_file_is_reloaded() {
    let elsewhere = TempDir::new().unwrap();
    let real = elsewhere.path().join("real.yaml");
    fs::write(&real, policy(1)).unwrap();
    let mut watched = Watched::start(false, |dir| {
        symlink(&real, dir.join("policy.yaml")).unwrap()
    });
    watched.accepted(1.0).await;
    replace(&real, &policy(2));
    watched.accepted(2.0).await;
}

#[tokio::test]
async fn directory_created_later_is_watched() {
    let dir = TempDir::new().unwrap();
    let files = PolicyFiles {
        policy: dir.path().join("later/policy.yaml"),
        tenants: None,
        catalogue: None,
    };
    let (tx, reloads) = mpsc::channel(1);
    tokio::spawn(files.watch(None, || (), tx));
    let mut watched = Watched { dir, reloads };
    watched.refused("cannot read").await;
    let building = watched.path("building");
    fs::create_dir(&building).unwrap();
    fs::write(building.join("policy.yaml"), policy(3)).unwrap();
    fs::rename(building, watched.path("later")).unwrap();
    watched.accepted(3.0).await;
}

#[tokio::test]
async fn watch_ends_when_the_receiver_is_dropped() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("policy.yaml"), policy(1)).unwrap();
    let files = PolicyFiles {
        policy: dir.path().join("policy.yaml"),
        tenants: None,
        catalogue: None,
    };
    let (tx, mut reloads) = mpsc::channel(1);
    let watching = tokio::spawn(files.watch(None, || (), tx));
    reloads.recv().await.unwrap().unwrap();
    drop(reloads);
    timeout(PATIENCE, watching)
        .await
        .expect("still watching")
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn catalogue_is_reloaded_with_the_policy() {
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("policy.yaml"), policy(1)).unwrap();
    fs::write(path("rows.csv"), "tenant\njo\n").unwrap();
    let files = PolicyFiles {
        policy: path("policy.yaml"),
        tenants: None,
        catalogue: Some(path("rows.csv")),
    };
    let (first, _, current) = files.read_version().unwrap();
    assert_eq!(files.hash().unwrap(), first.hash());
    let mut known = None;
    for _ in 0..2 {
        assert_eq!(files.hash_again(&mut known).unwrap(), first.hash());
    }
    let (tx, reloads) = mpsc::channel(1);
    tokio::spawn(files.clone().watch(Some(current), || (), tx));
    let rows = path("rows.csv");
    let mut watched = Watched { dir, reloads };
    replace(&rows, "tenant\njo\nal\n");
    let second = watched.accepted(1.0).await;
    assert!(second.row("al").is_some() && first.row("al").is_none());
    assert_eq!(files.hash().unwrap(), second.hash());
    assert_eq!(files.hash_again(&mut known).unwrap(), second.hash());
    replace(&rows, "tenant\njo\nal");
    watched
        .refused("rows.csv:3:1: the file ends within a row")
        .await;
    fs::remove_file(&rows).unwrap();
    watched.refused("cannot read").await;
    replace(&rows, "tenant\njo\n");
    assert_eq!(watched.accepted(1.0).await.hash(), first.hash());
}

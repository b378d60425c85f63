//! The cache file is restored whole or not at all, and a failing disk changes nothing else.

use std::fs;

use plimsoll_core::directive::{Epoch, KeyDirective, Terms, Values};
use plimsoll_core::names::{Bucket, Name, Tenant, Zone};

use super::*;

fn cache_file(directory: &Path) -> CacheFile {
    let owner = Owner {
        service: Name::new("shop").unwrap(),
        zone: Zone::new("a").unwrap(),
    };
    CacheFile::new(directory.join("directives"), owner)
}

fn directives(epoch: u64) -> Directives {
    Directives {
        lead: Epoch(epoch).into(),
        seq: 1,
        ..Directives::default()
    }
}

#[test]
fn last_write_is_read_without_leftovers() {
    let directory = tempfile::tempdir().unwrap();
    let cache_file = cache_file(directory.path());
    assert_eq!(cache_file.read(), None);
    for epoch in [1, 2] {
        cache_file.write(directives(epoch)).unwrap();
        assert_eq!(cache_file.read(), Some(directives(epoch)));
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn directives_are_restored_at_any_age() {
    let directory = tempfile::tempdir().unwrap();
    let cache_file = cache_file(directory.path());
    let bytes = snapshot::write(directives(7), &cache_file.owner, Duration::from_secs(1));
    fs::write(&cache_file.path, bytes).unwrap();
    assert_eq!(cache_file.read(), Some(directives(7)));
}

#[test]
fn damaged_file_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let cache_file = cache_file(directory.path());
    let whole = snapshot::write(directives(7), &cache_file.owner, Duration::from_secs(1));
    let too_long = [whole.clone(), vec![b' '; BYTES_MAX]].concat();
    for bytes in [
        whole[..50].to_vec(),
        b"".to_vec(),
        b"hello\n".to_vec(),
        vec![0xFF; 100],
        too_long,
    ] {
        fs::write(&cache_file.path, bytes).unwrap();
        assert_eq!(cache_file.read(), None);
    }
    fs::remove_file(&cache_file.path).unwrap();
    fs::create_dir(&cache_file.path).unwrap();
    assert_eq!(cache_file.read(), None);
}

#[test]
#[cfg(unix)]
fn obstacle_at_the_cache_path_is_replaced() {
    use std::os::unix::fs::symlink;
    let directory = tempfile::tempdir().unwrap();
    let cache_file = cache_file(directory.path());
    let path = cache_file.path.clone();
    let makes: [&dyn Fn(); 4] = [
        &|| {
            assert!(
                std::process::Command::new("mkfifo")
                    .arg(&path)
                    .status()
                    .unwrap()
                    .success()
            )
        },
        &|| symlink("/dev/zero", &path).unwrap(),
        &|| symlink(&path, &path).unwrap(),
        &|| fs::File::create(&path).unwrap().set_len(1 << 40).unwrap(),
    ];
    for make in makes {
        make();
        assert_eq!(cache_file.read(), None);
        cache_file.write(directives(3)).unwrap();
        assert_eq!(cache_file.read(), Some(directives(3)));
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn failed_write_leaves_the_former_file() {
    let directory = tempfile::tempdir().unwrap();
    let lost = cache_file(&directory.path().join("not/there"));
    assert!(lost.write(directives(1)).is_err());
    let cache_file = cache_file(directory.path());
    cache_file.write(directives(1)).unwrap();
    // No file can be renamed over a directory that is not empty.
    fs::remove_file(&cache_file.path).unwrap();
    fs::create_dir_all(cache_file.path.join("full")).unwrap();
    assert!(cache_file.write(directives(2)).is_err());
    assert_eq!(
        fs::read_dir(directory.path()).unwrap().count(),
        1,
        "the unfinished file is removed"
    );
}

#[test]
fn oversized_snapshot_keeps_the_default_classes() {
    let key = |tenant: &str| KeyDirective {
        tenant: Tenant::new(tenant).unwrap(),
        values: Values::default(),
    };
    let tenants = (0..30_000).map(|at| key(&format!("{}-{at}", "x".repeat(120))));
    let keys: Vec<KeyDirective> = tenants.chain([key("default")]).collect();
    let bucket = |at: u32| BucketDirective {
        bucket: Bucket::new(&format!("bucket-{at}")).unwrap(),
        whole: true,
        terms: Terms::default(),
        keys: keys.clone(),
    };
    let large = Directives {
        buckets: (0..3).map(bucket).collect(),
        ..directives(1)
    };
    let directory = tempfile::tempdir().unwrap();
    let cache_file = cache_file(directory.path());
    cache_file.write(large).unwrap();
    let read = cache_file.read().unwrap();
    assert_eq!(
        read.buckets
            .iter()
            .map(|bucket| bucket.keys.len())
            .collect::<Vec<_>>(),
        [1, 1, 1]
    );
}

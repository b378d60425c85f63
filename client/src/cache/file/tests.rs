//! The file is whole or not taken up, and whatever the disk does stays its own affair.

use plimsoll_core::names::{Bucket, Name, Tenant, Zone};
use plimsoll_core::directive::{BucketDirective, Epoch, KeyDirective, Terms, Values};

use super::*;

fn keepsake(directory: &Path) -> Keepsake {
    let owner = Owner { service: Name::new("shop").unwrap(), zone: Zone::new("a").unwrap() };
    Keepsake::new(directory.join("directives"), owner)
}

fn kept(epoch: u64) -> Kept {
    Kept { epoch: Some(Epoch(epoch)), ..Kept::default() }
}

#[test]
fn what_was_written_last_is_read_and_nothing_lies_about() {
    let directory = tempfile::tempdir().unwrap();
    let keepsake = keepsake(directory.path());
    assert_eq!(keepsake.read(), (Found::Nothing, None));
    for epoch in [1, 2] {
        keepsake.write(kept(epoch)).unwrap();
        let (found, read) = keepsake.read();
        assert_eq!(read, Some(kept(epoch)));
        assert!(matches!(found, Found::Directives(_)));
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn age_is_said_and_no_reason_to_refuse() {
    let directory = tempfile::tempdir().unwrap();
    let keepsake = keepsake(directory.path());
    let text = kept(7).to_text(&keepsake.owner, Duration::from_secs(1)).unwrap();
    fs::write(&keepsake.path, text).unwrap();
    let (found, read) = keepsake.read();
    assert_eq!(read, Some(kept(7)));
    let Found::Directives(age) = found else { panic!("{found:?}") };
    assert!(age > Duration::from_secs(40 * 365 * 86_400), "{age:?}");
}

#[test]
fn what_is_no_such_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let keepsake = keepsake(directory.path());
    let whole = kept(7).to_text(&keepsake.owner, Duration::from_secs(1)).unwrap();
    let too_long = format!("{whole}{}", " ".repeat(BYTES_MAX as usize));
    for (bytes, reason) in [
        (whole.as_bytes()[..40].to_vec(), "torn"),
        (b"".to_vec(), "torn"),
        (b"hello\n".to_vec(), "version"),
        (vec![0xFF; 100], "torn"),
        (too_long.into_bytes(), "torn"),
    ] {
        fs::write(&keepsake.path, bytes).unwrap();
        assert_eq!(keepsake.read(), (Found::Refused(reason), None));
    }
    fs::remove_file(&keepsake.path).unwrap();
    fs::create_dir(&keepsake.path).unwrap();
    assert_eq!(keepsake.read(), (Found::Refused("unreadable"), None));
}

#[test]
fn where_nothing_can_be_written_what_was_there_stays() {
    let directory = tempfile::tempdir().unwrap();
    let lost = keepsake(&directory.path().join("not/there"));
    assert!(matches!(lost.write(kept(1)), Err(KeepError::Write { .. })));
    let keepsake = keepsake(directory.path());
    keepsake.write(kept(1)).unwrap();
    // Nothing can be renamed over a directory with something in it.
    fs::remove_file(&keepsake.path).unwrap();
    fs::create_dir_all(keepsake.path.join("full")).unwrap();
    assert!(matches!(keepsake.write(kept(2)), Err(KeepError::Write { .. })));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "what was not finished is gone");
}

#[test]
fn of_more_than_a_file_may_hold_the_classes_are_kept() {
    let key = |tenant: &str| KeyDirective { tenant: Tenant::new(tenant).unwrap(), values: Values::default() };
    let tenants = (0..30_000).map(|at| key(&format!("{}-{at}", "x".repeat(120))));
    let keys: Vec<KeyDirective> = tenants.chain([key("default")]).collect();
    let bucket = |at: u32| BucketDirective {
        bucket: Bucket::new(&format!("bucket-{at}")).unwrap(),
        whole: true,
        terms: Terms::default(),
        keys: keys.clone(),
    };
    let large = Kept { buckets: (0..3).map(bucket).collect(), ..kept(1) };
    let directory = tempfile::tempdir().unwrap();
    let keepsake = keepsake(directory.path());
    keepsake.write(large).unwrap();
    let read = keepsake.read().1.unwrap();
    assert_eq!(read.buckets.iter().map(|bucket| bucket.keys.len()).collect::<Vec<_>>(), [1, 1, 1]);
}

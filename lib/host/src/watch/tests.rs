//! Files that are polled, and a disk that does not answer. The tests do not sleep: each step waits
//! for its reload.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

use tempfile::TempDir;

use super::*;

/// Far longer than any step takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Parses one file as text and refuses `bad`. Some attempts find a large file that cannot be read.
#[derive(Default)]
struct Text {
    unread: AtomicUsize,
}

#[derive(Debug, thiserror::Error)]
enum TextError {
    #[error(transparent)]
    Unread(#[from] ReadError),
    #[error("bad")]
    Bad,
}

impl Parser for Text {
    type Version = Vec<Vec<u8>>;
    type Output = String;
    type Error = TextError;

    fn version(&self, contents: &Contents) -> Self::Version {
        contents.to_owned()
    }

    fn parse(&self, contents: &Contents) -> Result<String, TextError> {
        let left = |unread: usize| unread.checked_sub(1);
        let unread = self
            .unread
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
        if unread.is_ok() {
            let (path, source) = (
                PathBuf::from("large"),
                io::ErrorKind::StaleNetworkFileHandle.into(),
            );
            return Err(ReadError::Io { path, source }.into());
        }
        let text = String::from_utf8(contents.concat()).unwrap();
        if text == "bad" {
            Err(TextError::Bad)
        } else {
            Ok(text)
        }
    }

    fn is_unread(error: &TextError) -> bool {
        matches!(error, TextError::Unread(_))
    }
}

struct Watched(mpsc::Receiver<Reload<Text>>);

impl Watched {
    async fn next(&mut self) -> String {
        let next = timeout(PATIENCE, self.0.recv())
            .await
            .expect("no reload")
            .expect("watching ended");
        next.unwrap_or_else(|error| error.to_string())
    }
}

/// Renames a complete file over the old one, so that no reader sees half of it.
fn replace(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    fs::write(&beside, text).unwrap();
    fs::rename(beside, path).unwrap();
}

fn one_file(text: &str) -> (TempDir, PathBuf, Files) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, text).unwrap();
    let files = Files {
        paths: vec![path.clone()],
        bytes_max: 100,
        large: Vec::new(),
    };
    (dir, path, files)
}

#[tokio::test]
async fn invalid_contents_are_reported_only_once() {
    let (dir, path, files) = one_file("one");
    let (tx, reloads) = mpsc::channel(1);
    tokio::spawn(files.watch(Text::default(), None, || (), tx));
    let mut watched = Watched(reloads);
    assert_eq!(watched.next().await, "one");
    replace(&path, "bad");
    assert_eq!(watched.next().await, "bad");
    replace(&path, "bad");
    replace(&dir.path().join("unrelated"), "");
    replace(&path, "one");
    assert_eq!(watched.next().await, "one");
    fs::remove_file(&path).unwrap();
    assert!(watched.next().await.starts_with("cannot read"));
}

/// Watches files without events.
fn polled(files: Files, text: Text, current: Option<Vec<Vec<u8>>>) -> Watched {
    let (tx, reloads) = mpsc::channel(1);
    tokio::spawn(async move {
        let (never, read) = (Notify::new(), |path: &Path| regular_file::read(path, 100));
        files
            .watch_by(Events::none(), &never, read, text, current, || (), tx)
            .await
    });
    Watched(reloads)
}

#[tokio::test]
async fn without_events_it_polls() {
    let (_dir, path, files) = one_file("one");
    let current = Some(files.read().unwrap());
    let mut watched = polled(files, Text::default(), current);
    // The current contents are not a change, so the first reload is the new one.
    replace(&path, "two");
    assert_eq!(watched.next().await, "two");
}

#[tokio::test]
async fn unread_large_file_is_told_once_and_tried_again() {
    let (_dir, _, files) = one_file("one");
    let text = Text {
        unread: AtomicUsize::new(2),
    };
    let mut watched = polled(files, text, None);
    assert!(watched.next().await.starts_with("cannot read large"));
    assert_eq!(watched.next().await, "one");
}

#[tokio::test]
async fn mute_disk_is_reported_and_read_later() {
    let (_dir, _, files) = one_file("one");
    let hangs = Arc::new((Mutex::new(true), Condvar::new()));
    let reads = Arc::new(AtomicUsize::new(0));
    let (gate, count) = (Arc::clone(&hangs), Arc::clone(&reads));
    let read = move |path: &Path| {
        count.fetch_add(1, Ordering::Relaxed);
        let (hangs, changed) = &*gate;
        drop(
            changed
                .wait_while(hangs.lock().unwrap(), |hangs| *hangs)
                .unwrap(),
        );
        regular_file::read(path, 100)
    };
    let current = Some(files.read().unwrap());
    let (tx, reloads) = mpsc::channel(1);
    let was_read = Arc::new(AtomicUsize::new(0));
    let on_read = Arc::clone(&was_read);
    let watching = tokio::spawn(async move {
        let (never, on_read) = (Notify::new(), || {
            _ = on_read.fetch_add(1, Ordering::Relaxed)
        });
        files
            .watch_by(
                Events::none(),
                &never,
                read,
                Text::default(),
                current,
                on_read,
                tx,
            )
            .await
    });
    let mut watched = Watched(reloads);
    assert!(watched.next().await.starts_with("no answer from the disk"));
    assert_eq!(
        (
            reads.load(Ordering::Relaxed),
            was_read.load(Ordering::Relaxed)
        ),
        (1, 0)
    );
    *hangs.0.lock().unwrap() = false;
    hangs.1.notify_all();
    // The contents are the earlier ones, and are reported because the files are valid again.
    assert_eq!(watched.next().await, "one");
    assert!(was_read.load(Ordering::Relaxed) > 0);
    *hangs.0.lock().unwrap() = true;
    assert!(watched.next().await.starts_with("no answer from the disk"));
    // Nothing waits for the disk at the end.
    drop(watched);
    timeout(PATIENCE, watching)
        .await
        .expect("watching goes on")
        .unwrap()
        .unwrap();
    *hangs.0.lock().unwrap() = false;
    hangs.1.notify_all();
}

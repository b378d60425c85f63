//! Replaces a file as a whole. The bytes are written to a new file in the same directory, synced
//! and renamed over the old one, so a crash leaves either the old file or the new one.

use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Replaces `path` with a file of these bytes that only its owner can read. It is on disk when this
/// returns.
///
/// # Errors
/// When it cannot be written: the old file is kept, and no partial file is left. When only the
/// directory cannot be synced: the new file is there, and may be lost in a crash. A device is never
/// replaced: root could, and every process that uses `/dev/null` would write to a file instead.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_with(path, bytes, 0o600, None)
}

/// Replaces `path` like [`replace`] with a file of this mode, and keeps the owner and group of the old
/// file, if there is one, so that the process that reads it still can when another user replaces it.
///
/// # Errors
/// The errors of [`replace`], and when the new file cannot be given to that owner.
pub fn replace_for_its_owner(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    replace_with(path, bytes, mode, path.metadata().ok().as_ref())
}

fn replace_with(path: &Path, bytes: &[u8], mode: u32, before: Option<&Metadata>) -> io::Result<()> {
    refuse_device(path)?;
    let beside = beside(path);
    let written = write(&beside, bytes, mode, before).and_then(|()| fs::rename(&beside, path));
    if let Err(error) = written {
        // The disk may be full; an unfinished file must not take up space.
        let _ = fs::remove_file(&beside);
        return Err(error);
    }
    // The rename itself is an entry of the directory.
    sync_directory(directory_of(path))
}

/// Makes the entries of a directory durable.
///
/// # Errors
/// When the system refuses.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    #[cfg(unix)]
    File::open(directory)?.sync_all()?;
    #[cfg(not(unix))]
    let _ = directory;
    Ok(())
}

fn write(path: &Path, bytes: &[u8], mode: u32, before: Option<&Metadata>) -> io::Result<()> {
    // A crash may have left a file of this name; a link or a FIFO must not receive the bytes.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    let mut file = options.open(path)?;
    file.write_all(bytes)?;
    set_owner_and_mode(&file, mode, before)?;
    file.sync_all()
}

fn set_owner_and_mode(file: &File, mode: u32, before: Option<&Metadata>) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
        let own = file.metadata()?;
        if let Some(before) =
            before.filter(|before| (before.uid(), before.gid()) != (own.uid(), own.gid()))
        {
            let failed = |error: io::Error| {
                let (user, group) = (before.uid(), before.gid());
                let text = format!(
                    "the new file cannot be given to user {user} and group {group}: {error}"
                );
                io::Error::new(error.kind(), text)
            };
            fchown(file, Some(before.uid()), Some(before.gid())).map_err(failed)?;
        }
        file.set_permissions(fs::Permissions::from_mode(mode))?;
    }
    #[cfg(not(unix))]
    let _ = (file, mode, before);
    Ok(())
}

/// A name in the same directory, because renaming is atomic only within one file system.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

fn refuse_device(path: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        // A link itself is replaced, not its target.
        let kind = path.symlink_metadata().map(|metadata| metadata.file_type());
        if kind.is_ok_and(|kind| kind.is_char_device() || kind.is_block_device()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is a device, not a regular file",
            ));
        }
    }
    #[cfg(not(unix))]
    let _ = path;
    Ok(())
}

/// Returns the directory of a file, `.` for a bare name.
#[must_use]
pub fn directory_of(path: &Path) -> &Path {
    path.parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::Command;

    use super::*;

    #[test]
    fn file_is_replaced_whole_despite_crash_remains() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        let beside = directory.path().join("state.new");
        let elsewhere = directory.path().join("elsewhere");
        fs::write(&elsewhere, "kept").unwrap();
        let leftovers: [&dyn Fn(); 4] = [
            &|| {},
            &|| fs::write(&beside, "half of a longer file").unwrap(),
            &|| symlink(&elsewhere, &beside).unwrap(),
            &|| {
                assert!(
                    Command::new("mkfifo")
                        .arg(&beside)
                        .status()
                        .unwrap()
                        .success()
                )
            },
        ];
        for (number, leave) in leftovers.iter().enumerate() {
            leave();
            replace(&path, number.to_string().as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), number.to_string());
            assert_eq!(
                fs::metadata(&path).unwrap().permissions().mode() & 0o777,
                0o600
            );
        }
        assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "kept");
        assert!(!beside.exists());
    }

    #[test]
    fn replacement_has_requested_mode_and_former_owner() {
        use std::os::unix::fs::{MetadataExt, chown};
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens");
        for (owner, mode) in [(None, 0o640), (Some(12_345), 0o600), (Some(12_345), 0o644)] {
            // Only root may give files away.
            let owner = owner.filter(|_| chown(directory.path(), Some(0), None).is_ok());
            replace_for_its_owner(&path, b"first", 0o600).unwrap();
            chown(&path, owner, owner).unwrap();
            let before = fs::metadata(&path).unwrap();
            replace_for_its_owner(&path, b"second", mode).unwrap();
            let after = fs::metadata(&path).unwrap();
            assert_eq!((after.uid(), after.gid()), (before.uid(), before.gid()));
            assert_eq!(after.permissions().mode() & 0o777, mode);
            assert_eq!(fs::read(&path).unwrap(), b"second");
        }
    }

    #[test]
    fn failed_write_keeps_the_file_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        replace(&path, b"before").unwrap();
        fs::create_dir(directory.path().join("state.new")).unwrap();
        assert!(replace(&path, b"after").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"before");
    }

    #[test]
    fn device_is_refused_and_its_link_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        symlink("/dev/null", &link).unwrap();
        replace(&link, b"content").unwrap();
        assert_eq!(fs::read(&link).unwrap(), b"content");
        // Does not call `replace`: if this test ran as root and failed, the device would be lost.
        assert!(
            refuse_device(Path::new("/dev/null"))
                .unwrap_err()
                .to_string()
                .contains("a device")
        );
        for free in ["link", "missing"] {
            refuse_device(&directory.path().join(free)).unwrap();
        }
    }
}

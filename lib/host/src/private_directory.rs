//! Directories that only their owner can read: files on disk name tenants and operators.

use std::fs::DirBuilder;
use std::io;
use std::path::Path;

use crate::atomic_file::{directory_of, sync_directory};

/// Creates a directory and its missing parents, all on disk when this returns. Existing directories
/// keep their modes.
///
/// # Errors
/// When one cannot be created.
pub fn create(directory: &Path) -> io::Result<()> {
    let missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
    let created = directory.ancestors().take_while(missing).count();
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(directory)?;
    for path in directory.ancestors().take(created) {
        sync_directory(directory_of(path))?;
    }
    Ok(())
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn created_directories_are_private() {
        let place = tempfile::tempdir().unwrap();
        let open = place.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, Permissions::from_mode(0o755)).unwrap();
        create(&open.join("state/history")).unwrap();
        create(&open.join("state/history")).unwrap();
        for (path, expected) in [("", 0o755), ("state", 0o700), ("state/history", 0o700)] {
            assert_eq!(
                fs::metadata(open.join(path)).unwrap().permissions().mode() & 0o777,
                expected,
                "{path}"
            );
        }
        fs::write(open.join("file"), "").unwrap();
        assert!(create(&open.join("file")).is_err());
    }
}

//! Reads only regular files. A FIFO, socket, device or directory at the path is refused
//! immediately, because opening or reading it may wait forever or never end.

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Opens a regular file for reading.
///
/// # Errors
/// When the system refuses, or the path is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(File::options().read(true), path)
}

/// Opens a regular file for writing without truncating it. Creates it if it does not exist.
///
/// # Errors
/// When the system refuses, or the path is not a regular file.
pub fn open_or_create(path: &Path) -> io::Result<File> {
    open_with(
        File::options().create(true).truncate(false).write(true),
        path,
    )
}

/// Opens a regular file for reading and appending. Creates it, readable only by its owner, if it
/// does not exist.
///
/// # Errors
/// When the system refuses, or the path is not a regular file.
pub fn open_to_append(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).create(true).append(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    open_with(&mut options, path)
}

fn open_with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // A FIFO without a writer would block, and a terminal would become the controlling
        // terminal.
        options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    }
    let file = options.open(path)?;
    // Checks the opened file: the path may lead to another file by now.
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("it is {}, not a regular file", name_of(kind)),
    ))
}

/// Returns true if a file is empty or ends with a line feed.
///
/// # Errors
/// When it cannot be read.
pub fn ends_with_line(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// Reads at most `bytes_max` + 1 bytes of a regular file; the extra byte shows that it is too
/// large.
///
/// # Errors
/// When it cannot be opened or read.
pub fn read(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?
        .take(bytes_max as u64 + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a regular file of at most `bytes_max` bytes.
///
/// # Errors
/// When it cannot be opened or read, or is larger.
pub fn read_whole(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let bytes = read(path, bytes_max)?;
    if bytes.len() <= bytes_max {
        return Ok(bytes);
    }
    let error = format!("it is larger than {} KiB", bytes_max >> 10);
    Err(io::Error::new(io::ErrorKind::FileTooLarge, error))
}

fn name_of(kind: FileType) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return "a FIFO";
        }
        if kind.is_char_device() || kind.is_block_device() {
            return "a device";
        }
    }
    if kind.is_dir() {
        "a directory"
    } else {
        "something else"
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;
    use std::process::Command;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use super::*;

    /// Reads in another thread, so that a read that blocks forever fails the test.
    fn read_in_time(path: PathBuf) -> Result<Vec<u8>, String> {
        let (sender, receiver) = mpsc::channel();
        let shown = path.display().to_string();
        thread::spawn(move || sender.send(read(&path, 10).map_err(|error| error.to_string())));
        receiver
            .recv_timeout(Duration::from_secs(60))
            .unwrap_or_else(|_| panic!("{shown} blocks"))
    }

    #[test]
    fn only_regular_files_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::write(path("file"), "0123456789").unwrap();
        symlink("file", path("link")).unwrap();
        symlink("loop", path("loop")).unwrap();
        symlink("nothing", path("dangling")).unwrap();
        assert!(
            Command::new("mkfifo")
                .arg(path("fifo"))
                .status()
                .unwrap()
                .success()
        );
        let _socket = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        for name in ["file", "link"] {
            assert_eq!(read_in_time(path(name)).unwrap(), b"0123456789", "{name}");
        }
        for (path, reason) in [
            (path("fifo"), "a FIFO"),
            (path("."), "a directory"),
            (PathBuf::from("/dev/zero"), "a device"),
            (path("socket"), ""),
            (path("loop"), ""),
            (path("dangling"), "No such file"),
            (path("file/below"), ""),
        ] {
            let error = read_in_time(path.clone()).unwrap_err();
            assert!(error.contains(reason), "{}: {error}", path.display());
        }
    }

    #[test]
    fn oversized_file_is_cut_or_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sparse");
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read(&path, 10).unwrap().len(), 11);
        assert_eq!(
            read_whole(&path, 1 << 20).unwrap_err().to_string(),
            "it is larger than 1024 KiB"
        );
        File::create(&path).unwrap().set_len(10).unwrap();
        assert_eq!(read_whole(&path, 10).unwrap().len(), 10);
        assert!(read_whole(&path, 9).is_err());
    }
}

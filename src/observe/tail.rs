//! A growing file, line by line, without missing one.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Reads what was appended since the last look. A file that was renamed away (rotation) is read to its end before the
/// new one under the name is begun; a file that was cut short is begun again.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    open: Option<Opened>,
    /// The beginning of a line whose end is not written yet.
    partial: Vec<u8>,
}

#[derive(Debug)]
struct Opened {
    file: File,
    inode: u64,
    read: u64,
}

impl Tail {
    /// From the beginning of the file, which need not exist yet.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_path_buf(), open: None, partial: Vec::new() }
    }

    /// The whole lines that are new, without their ends.
    ///
    /// # Errors
    /// When the file can't be read; that it doesn't exist is no error.
    pub fn lines(&mut self) -> io::Result<Vec<String>> {
        let mut bytes = std::mem::take(&mut self.partial);
        loop {
            if self.open.is_none() {
                self.open = open(&self.path)?;
            }
            let Some(opened) = &mut self.open else { break };
            // Asked before reading: what the writer put into the old file before it made the new one is then read below.
            let succeeded = std::fs::metadata(&self.path).is_ok_and(|m| m.ino() != opened.inode);
            if opened.file.metadata()?.len() < opened.read {
                self.open = None;
                bytes.clear();
                continue;
            }
            opened.read += opened.file.read_to_end(&mut bytes)? as u64;
            if !succeeded {
                break;
            }
            self.open = None;
        }
        let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        self.partial = bytes.split_off(whole);
        Ok(String::from_utf8_lossy(&bytes).lines().map(str::to_string).collect())
    }
}

fn open(path: &Path) -> io::Result<Option<Opened>> {
    match File::open(path) {
        Ok(file) => Ok(Some(Opened { inode: file.metadata()?.ino(), file, read: 0 })),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn append(path: &Path, text: &str) {
        File::options().create(true).append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn whole_lines_come_once_and_half_ones_later() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut tail = Tail::new(&path);
        assert!(tail.lines().unwrap().is_empty(), "not there yet");
        append(&path, "one\ntw");
        assert_eq!(tail.lines().unwrap(), ["one"]);
        assert!(tail.lines().unwrap().is_empty());
        append(&path, "o\n");
        assert_eq!(tail.lines().unwrap(), ["two"]);
    }

    #[test]
    fn rotation_and_truncation_lose_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (path, old) = (dir.path().join("log"), dir.path().join("log.0"));
        let mut tail = Tail::new(&path);
        append(&path, "one\n");
        assert_eq!(tail.lines().unwrap(), ["one"]);
        append(&path, "two\n");
        std::fs::rename(&path, &old).unwrap();
        append(&old, "three\n");
        append(&path, "four\n");
        assert_eq!(tail.lines().unwrap(), ["two", "three", "four"]);
        std::fs::write(&path, "5\n").unwrap();
        assert_eq!(tail.lines().unwrap(), ["5"]);
    }
}

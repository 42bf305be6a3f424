//! Follows a file that somebody else appends to.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

/// A file and how far it was read. It need not exist yet.
#[derive(Debug)]
pub(super) struct Tail {
    path: PathBuf,
    file: Option<File>,
}

impl Tail {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, file: None }
    }

    /// Copies what was appended since the last call.
    pub(super) fn copy_new(&mut self, to: &mut dyn Write) -> io::Result<()> {
        if self.file.is_none() {
            self.file = match File::open(&self.path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
                opened => Some(opened?),
            };
        }
        if let Some(file) = &mut self.file
            && io::copy(file, to)? > 0
        {
            to.flush()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_copied_once_and_a_file_that_comes_later_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let mut tail = Tail::new(path.clone());
        let mut seen = Vec::new();
        tail.copy_new(&mut seen).unwrap();
        let mut file = File::options().create(true).append(true).open(&path).unwrap();
        for part in ["one\n", "two"] {
            file.write_all(part.as_bytes()).unwrap();
            tail.copy_new(&mut seen).unwrap();
            tail.copy_new(&mut seen).unwrap();
        }
        assert_eq!(seen, b"one\ntwo");
    }
}

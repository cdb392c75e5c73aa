//! The file of users on disk. It is replaced as a whole, so that a crash leaves the one before or
//! the new one, and it belongs to its owner alone.

use std::{
    fs::{self, File, Metadata, OpenOptions, Permissions},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown},
    path::{Path, PathBuf},
};

use busload_acl::{UserFile, limits::FILE_BYTES_MAX};

/// Permissions of the file: its owner reads and writes it.
const MODE: u32 = 0o600;
/// Permission bits of the group and of everybody.
const OTHERS: u32 = 0o077;

/// A file of users, by its path.
#[derive(Clone, Debug)]
pub struct AclFile {
    path: PathBuf,
}

impl AclFile {
    /// Takes the path of a file, which need not exist yet.
    pub fn new(path: &Path) -> Self {
        // A link to the file stays a link to it.
        Self { path: fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()) }
    }

    /// Returns whether there is such a file.
    pub fn exists(&self) -> bool {
        self.path.exists()
    }

    /// Returns a warning if others can read the file, who could then guess passwords offline.
    pub fn warning(&self) -> Option<String> {
        let mode = fs::metadata(&self.path).ok()?.permissions().mode();
        (mode & OTHERS != 0).then(|| {
            format!(
                "the file of users {} can be used by others (mode {:03o}); chmod 600 keeps it \
                 private",
                self.path.display(),
                mode & 0o777
            )
        })
    }
}

/// Returns the directory of a file.
pub fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Replaces a file as a whole. Owner and mode are those of another file, if there is one; else the
/// new file belongs to its owner alone.
pub fn replace(path: &Path, text: &str, like: Option<&Metadata>) -> io::Result<()> {
    let directory = directory_of(path);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = directory.join(name);
    let written = write_new(&new, text, like).and_then(|()| fs::rename(&new, path));
    if let Err(error) = written {
        // It may not have been created.
        let _ = fs::remove_file(&new);
        return Err(error);
    }
    File::open(directory)?.sync_all()
}

fn write_new(path: &Path, text: &str, like: Option<&Metadata>) -> io::Result<()> {
    // What a process with the same number left when it crashed is in nobody's way.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)?;
    // The mode of a new file is less what `umask` takes.
    file.set_permissions(Permissions::from_mode(MODE))?;
    if let Some(like) = like {
        fchown(&file, Some(like.uid()), Some(like.gid()))?;
        file.set_permissions(like.permissions())?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

impl UserFile for AclFile {
    fn read(&self) -> Result<String, String> {
        let name = self.path.display();
        let read = || -> io::Result<String> {
            let mut text = String::new();
            let file = File::open(&self.path)?.take(FILE_BYTES_MAX + 1);
            io::BufReader::new(file).read_to_string(&mut text)?;
            Ok(text)
        };
        let text =
            read().map_err(|error| format!("cannot read the file of users {name}: {error}"))?;
        if FILE_BYTES_MAX < text.len() as u64 {
            return Err(format!("{name} is longer than 16 MiB, which no file of users is"));
        }
        Ok(text)
    }

    fn write(&self, text: &str) -> Result<(), String> {
        let name = self.path.display();
        replace(&self.path, text, None)
            .map_err(|error| format!("cannot write the file of users {name}: {error}"))
    }
}

const _: () = assert!(FILE_BYTES_MAX == 16 << 20, "the error text says so");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_belongs_to_its_owner() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users.acl");
        let file = AclFile::new(&path);
        assert!(!file.exists() && file.read().unwrap_err().contains("users.acl"));
        file.write("user ada on\n").unwrap();
        assert_eq!(file.read().unwrap(), "user ada on\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        assert_eq!(file.warning(), None);
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert!(file.warning().unwrap().contains("mode 644"));
        // What a crash left behind is in nobody's way, and the mode is private again.
        let left = directory.path().join(format!("users.acl.{}.new", std::process::id()));
        fs::write(&left, "half").unwrap();
        file.write("user ada off\n").unwrap();
        assert_eq!(file.read().unwrap(), "user ada off\n");
        assert_eq!(file.warning(), None);
        let names = fs::read_dir(directory.path()).unwrap();
        assert_eq!(names.count(), 1, "no other file stays");
    }

    #[test]
    fn a_link_to_the_file_stays_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("users.acl"), directory.path().join("link"));
        fs::write(&path, "").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        AclFile::new(&link).write("user ada on\n").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&path).unwrap(), "user ada on\n");
    }

    #[test]
    fn a_file_that_cannot_be_written_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let file = AclFile::new(&directory.path().join("nothing/users.acl"));
        assert!(file.write("x").unwrap_err().contains("cannot write the file of users"));
    }
}

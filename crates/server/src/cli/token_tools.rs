//! `busload token add`: makes a token, adds its hash to the file of tokens and prints it.
//!
//! The file is replaced as a whole, with comments, owner and mode as they were. A lock on its
//! directory makes two that add at the same time wait for each other.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};
use toml::{Table, Value, value::Datetime};

use super::arguments::AddTokenArgs;
use crate::{
    config,
    failure::Failure,
    tokens,
    users_file::{directory_of, replace},
};

/// Bytes of a new token before they are written as text: too many to guess.
const TOKEN_BYTES: usize = 32;

/// Adds a token and prints it.
pub fn add(arguments: &AddTokenArgs) -> Result<(), Failure> {
    let path = config::token_file(arguments.token_file.clone(), arguments.config.as_deref())?;
    // A link to the file stays a link to it.
    let path = fs::canonicalize(&path).unwrap_or(path);
    let token = hex(&busload_acl::random::<TOKEN_BYTES>());
    let entry = entry(arguments, &token)?;
    append(&path, &arguments.name, &entry)?;
    // A closed standard output is a failure here: nobody has seen the token.
    writeln!(io::stdout(), "{token}")
        .map_err(|error| Failure::run(format!("cannot print the token: {error}")))?;
    eprintln!(
        "token {} is now in {}; a running server takes it over with `busload reload`. It is shown \
         only this once",
        arguments.name,
        path.display()
    );
    Ok(())
}

/// Returns the lines of a token.
fn entry(arguments: &AddTokenArgs, token: &str) -> Result<String, Failure> {
    let mut entry = Table::new();
    entry.insert("name".to_owned(), Value::String(arguments.name.clone()));
    entry.insert("sha256".to_owned(), Value::String(hex(&Sha256::digest(token))));
    let stores = arguments.stores.iter().cloned().map(Value::String).collect();
    entry.insert("read".to_owned(), Value::Array(stores));
    if let Some(time) = &arguments.expires {
        let expected = "--expires: expected a time with its offset, like 2027-01-01T00:00:00Z";
        let time: Datetime = time.parse().map_err(|_| Failure::usage(expected))?;
        entry.insert("expires".to_owned(), Value::Datetime(time));
    }
    Ok(format!("[[token]]\n{entry}"))
}

/// Adds an entry to the file, which is valid afterwards or as it was.
fn append(path: &Path, name: &str, entry: &str) -> Result<(), Failure> {
    let shown = path.display();
    let failed = |error: io::Error| {
        Failure::run(format!("cannot write the file of tokens {shown}: {error}"))
    };
    let directory = File::open(directory_of(path)).map_err(failed)?;
    flock(&directory, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
    let (text, metadata) = match fs::metadata(path) {
        Ok(metadata) => (tokens::read_text(path).map_err(Failure::run)?, Some(metadata)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => (String::new(), None),
        Err(error) => return Err(failed(error)),
    };
    if names(&text).iter().any(|known| known == name) {
        return Err(Failure::usage(format!(
            "token {name} is in {shown} already; expected another name, or its lines removed first"
        )));
    }
    let gap = match &*text {
        "" => "",
        text if text.ends_with('\n') => "\n",
        _ => "\n\n",
    };
    let text = format!("{text}{gap}{entry}");
    tokens::check_text(&text).map_err(|error| Failure::usage(format!("{shown}: {error}")))?;
    replace(path, &text, metadata.as_ref()).map_err(failed)
}

/// Returns the names of the tokens in a file; a malformed one has none.
fn names(text: &str) -> Vec<String> {
    let table: Table = text.parse().unwrap_or_default();
    let list = table.get("token").and_then(Value::as_array);
    let names = list.into_iter().flatten().filter_map(|entry| entry.get("name")?.as_str());
    names.map(str::to_owned).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt, path::PathBuf, thread};

    use super::*;

    fn arguments(name: &str, stores: &[&str], path: &Path) -> AddTokenArgs {
        AddTokenArgs {
            name: name.to_owned(),
            stores: stores.iter().map(|store| (*store).to_owned()).collect(),
            expires: None,
            token_file: Some(path.to_owned()),
            config: None,
        }
    }

    fn new_path() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokens.toml");
        (directory, path)
    }

    #[test]
    fn what_is_in_the_file_stays_as_it_is() {
        let (directory, path) = new_path();
        fs::write(&path, "# ours").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        add(&arguments("ci \"x\"", &["org/*", "a"], &path)).unwrap();
        let mut late = arguments("late", &["b"], &path);
        late.expires = Some("2027-01-01T00:00:00Z".to_owned());
        add(&late).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# ours\n\n[[token]]\nname = "), "{text}");
        assert!(text.contains("read = [\"org/*\", \"a\"]"), "{text}");
        assert!(text.contains("expires = 2027-01-01T00:00:00Z"), "{text}");
        assert_eq!(names(&text), ["ci \"x\"", "late"]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no other file stays");
    }

    #[test]
    fn a_mistake_changes_nothing() {
        let (_directory, path) = new_path();
        add(&arguments("ci", &["org/*"], &path)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let before = fs::read_to_string(&path).unwrap();
        let mut late = arguments("late", &["b"], &path);
        late.expires = Some("2027-01-01".to_owned());
        for (arguments, part) in [
            (arguments("ci", &["a"], &path), "is in"),
            (arguments("x", &["a//b"], &path), "no pattern"),
            (late, "2027-01-01T00:00:00Z"),
        ] {
            let error = add(&arguments).unwrap_err().to_string();
            assert!(error.contains(part), "{part}: {error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), before);
        }
        fs::write(&path, "[[token]\n").unwrap();
        assert!(add(&arguments("x", &["a"], &path)).unwrap_err().to_string().contains("line 1"));
    }

    #[test]
    fn tokens_that_are_added_at_the_same_time_are_all_there() {
        let (_directory, path) = new_path();
        thread::scope(|scope| {
            for number in 0..8 {
                let arguments = arguments(&format!("t{number}"), &["org/*"], &path);
                scope.spawn(move || add(&arguments).unwrap());
            }
        });
        assert_eq!(names(&fs::read_to_string(&path).unwrap()).len(), 8);
    }
}

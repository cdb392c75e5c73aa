//! Settings of tables of kind `postgres`, from a URL on the command line or from a section of the
//! file.
//!
//! The crate `busload-postgres` interprets the URL's query and the settings; this module parses the
//! types of the file's values. No message shows a URL: it may hold a password.

use busload_postgres::{Environment, Options, Settings};

use super::{
    settings::{POSTGRES_SETTINGS, names},
    table::unknown,
    units::{Size, parse_duration, yes_or_no},
};
use crate::failure::Failure;

/// Keys of a section.
pub const POSTGRES_KEYS: [&str; 14] = names(&POSTGRES_SETTINGS);

/// Settings of one table as given. `Debug` shows no URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresSpec {
    pub name: String,
    options: Options,
}

impl PostgresSpec {
    /// Table of this name without any settings.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), options: Options::default() }
    }

    /// Table with all settings in a URL.
    pub fn of_url(name: &str, url: &str) -> Self {
        Self {
            name: name.to_owned(),
            options: Options { url: Some(url.to_owned()), ..Options::default() },
        }
    }

    /// Sets one setting of the file, from one value or those of an array.
    pub fn set(&mut self, key: &str, values: &[String]) -> Result<(), String> {
        let options = &mut self.options;
        match key {
            "key" => return set_names(&mut options.key, key, values),
            "columns" => return set_names(&mut options.columns, key, values),
            _ => {}
        }
        let [value] = values else { return Err(format!("`{key}` takes one value")) };
        match key {
            "url" => options.url = Some(text(key, value)?),
            "relation" => options.relation = Some(text(key, value)?),
            "password_file" => options.password_file = Some(text(key, value)?.into()),
            "separator" => options.separator = Some(letter(value)?),
            "writable" => options.writable = Some(yes_or_no(key, value)?),
            "join_in_flight" => options.join_in_flight = Some(yes_or_no(key, value)?),
            "connections" => options.connections = Some(count(key, value)?),
            "batch" => options.batch = Some(count(key, value)?),
            "queue_requests" => options.queue_requests = Some(count(key, value)?),
            "queue_bytes" => options.queue_bytes = Some(value.parse::<Size>()?.0),
            "timeout" => options.timeout = Some(parse_duration(value)?),
            _ => return Err(unknown(key, "setting of a postgres table", &POSTGRES_KEYS)),
        }
        Ok(())
    }

    /// Checks all settings and fills in defaults. The table's own password variable wins over
    /// `PGPASSWORD`, which all tables share.
    pub fn resolve(&self, environment: &Environment) -> Result<Settings, Failure> {
        let name = &self.name;
        let resolved = match environment.variable(&password_variable(name)) {
            Some(own) => self.options.clone().resolve(name, &environment.with("PGPASSWORD", own)),
            None => self.options.clone().resolve(name, environment),
        };
        resolved.map_err(|error| Failure::usage(format!("table {name}: {error}")))
    }

    /// Refuses a URL with a password: on a command line everybody on the machine can read it.
    pub fn check_no_password(&self) -> Result<(), Failure> {
        if !self.options.url_has_password() {
            return Ok(());
        }
        let (name, variable) = (&self.name, password_variable(&self.name));
        Err(Failure::usage(format!(
            "--table {name}: the URL holds a password, which everybody on this machine can read \
             there (`ps`); give it by {variable}, PGPASSWORD or PGPASSFILE in the environment, or \
             by password_file in the configuration file"
        )))
    }
}

/// Returns the name of the environment variable with the password of one table.
pub fn password_variable(table: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("BUSLOAD_TABLE_{}_PASSWORD", table.chars().map(letter).collect::<String>())
}

fn text(key: &str, value: &str) -> Result<String, String> {
    if value.is_empty() { Err(format!("`{key}` is empty")) } else { Ok(value.to_owned()) }
}

/// Sets names from `a,b`, as in a URL, or from an array, in which a name may hold a comma.
fn set_names(names: &mut Option<Vec<String>>, key: &str, values: &[String]) -> Result<(), String> {
    let split: Vec<String> = match values {
        [value] => value.split(',').map(|name| name.trim().to_owned()).collect(),
        values => values.to_vec(),
    };
    if split.is_empty() || split.iter().any(String::is_empty) {
        return Err(format!("`{key}` takes the name of a column or several"));
    }
    *names = Some(split);
    Ok(())
}

fn letter(value: &str) -> Result<char, String> {
    let mut letters = value.chars();
    match (letters.next(), letters.next()) {
        (Some(letter), None) => Ok(letter),
        _ => Err(format!("separator `{value}`; expected one character")),
    }
}

fn count(key: &str, value: &str) -> Result<usize, String> {
    value.parse().map_err(|_| format!("{key} = `{value}`; expected a whole number"))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::config::table::TableSpec;

    fn spec(text: &str) -> PostgresSpec {
        match text.parse() {
            Ok(TableSpec::Postgres(spec)) => *spec,
            other => panic!("{text}: {other:?}"),
        }
    }

    fn environment(variables: &'static [(&str, &str)]) -> Environment {
        let value =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value);
        Environment::new(move |name| value(name).map(OsString::from), Some("somebody".into()))
    }

    fn resolved(text: &str) -> Result<Settings, Failure> {
        spec(text).resolve(&environment(&[]))
    }

    #[test]
    fn a_url_says_everything() {
        for scheme in ["postgres", "postgresql"] {
            let url =
                "db:5433/lake?relation=public.t&key=a,b&columns=x,y&writable=true&timeout=250ms";
            let settings = resolved(&format!("objects={scheme}://app@{url}")).unwrap();
            assert_eq!((settings.name.as_str(), settings.key.len()), ("objects", 2));
            assert_eq!(settings.columns.as_deref(), Some(&["x".to_owned(), "y".to_owned()][..]));
            assert!(settings.writable && settings.timeout.as_millis() == 250);
        }
    }

    #[test]
    fn mistakes_name_the_table_and_the_nearest_setting() {
        for (query, part) in [
            ("relation=t&key=k&colums=x", "did you mean `columns`?"),
            ("relation=t", "key is missing"),
            ("key=k", "relation is missing"),
            ("relation=t&key=k&connections=0", "expected 1 to"),
            ("relation=t&key=k&writable=maybe", "expected true or false"),
        ] {
            let message = resolved(&format!("objects=postgres://app@db/lake?{query}"))
                .unwrap_err()
                .to_string();
            assert!(
                message.starts_with("table objects: ") && message.contains(part),
                "{query}: {message}"
            );
        }
    }

    #[test]
    fn a_password_in_a_flag_is_refused_and_named_nowhere() {
        for text in [
            "my-objects=postgres://app:secret@db/lake?relation=t&key=k",
            "my-objects=postgres://app@db/lake?relation=t&key=k&password=secret",
            "my-objects=postgres://:secret@db/lake?colums=x",
        ] {
            let spec = spec(text);
            let message = spec.check_no_password().unwrap_err().to_string();
            for part in [
                "BUSLOAD_TABLE_MY_OBJECTS_PASSWORD",
                "PGPASSWORD",
                "PGPASSFILE",
                "password_file",
                "ps",
            ] {
                assert!(message.contains(part), "{part}: {message}");
            }
            let shown = format!("{message} {spec:?} {:?}", spec.resolve(&environment(&[])));
            assert!(!shown.contains("secret"), "{shown}");
        }
        assert_eq!(spec("a=postgres://app@db/lake?relation=t&key=k").check_no_password(), Ok(()));
    }

    #[test]
    fn the_tables_own_variable_comes_before_that_of_all() {
        let spec = spec("my-objects=postgres://app@db/lake?relation=t&key=k");
        let source = |variables| {
            format!("{:?}", spec.resolve(&environment(variables)).unwrap().server.password)
        };
        let both = source(&[("PGPASSWORD", "a"), ("BUSLOAD_TABLE_MY_OBJECTS_PASSWORD", "b")]);
        let given = source(&[("BUSLOAD_TABLE_MY_OBJECTS_PASSWORD", "b")]);
        assert!(both.contains("Given") && given.contains("Given"), "{both} {given}");
        let password = |variables| spec.resolve(&environment(variables)).unwrap().server.password;
        let own = password(&[("PGPASSWORD", "a"), ("BUSLOAD_TABLE_MY_OBJECTS_PASSWORD", "b")]);
        assert_eq!(own, password(&[("PGPASSWORD", "b")]));
        assert_ne!(own, password(&[("PGPASSWORD", "a")]));
    }

    #[test]
    fn the_page_has_a_row_for_each_setting() {
        let page = include_str!("../../../../docs/postgres.md");
        for key in POSTGRES_KEYS.into_iter().filter(|key| *key != "kind") {
            assert!(page.contains(&format!("\n| `{key}` |")), "{key}");
        }
    }

    #[test]
    fn settings_of_the_file_are_those_of_the_url() {
        let mut in_file = PostgresSpec::new("objects");
        for (key, values) in [
            ("url", &["postgres://app@db/lake"][..]),
            ("relation", &["t"]),
            ("key", &["a, b"]),
            ("columns", &["x", "y"]),
            ("separator", &["/"]),
            ("writable", &["true"]),
            ("connections", &["3"]),
            ("timeout", &["2s"]),
            ("batch", &["50"]),
            ("queue_requests", &["700"]),
            ("queue_bytes", &["8MiB"]),
            ("join_in_flight", &["true"]),
            ("password_file", &["/f"]),
        ] {
            let values: Vec<String> = values.iter().map(ToString::to_string).collect();
            in_file.set(key, &values).unwrap();
            assert!(POSTGRES_KEYS.contains(&key));
        }
        let url = "objects=postgres://app@db/lake?relation=t&key=a,b&columns=x,y&separator=/\
                   &writable=true&connections=3&timeout=2s&batch=50\
                   &queue_requests=700&queue_bytes=8MiB&join_in_flight=true&password_file=/f";
        let shown = |spec: &PostgresSpec| format!("{:?}", spec.resolve(&environment(&[])).unwrap());
        assert_eq!(shown(&in_file), shown(&spec(url)));
    }
}

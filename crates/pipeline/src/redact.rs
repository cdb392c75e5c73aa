//! Arguments that nobody may see again: passwords, which neither the slow log nor MONITOR shows.

use crate::args::Args;

/// Text in place of a secret, as in Redis.
const REDACTED: &[u8] = b"(redacted)";

/// Settings whose values are secrets.
const SECRET_SETTINGS: [&str; 3] = ["requirepass", "masterauth", "tls-key-file-pass"];

/// Returns an argument of a command (named as in the table) as others may see it.
pub(crate) fn shown<'a>(command: &str, args: &Args<'a>, index: usize) -> &'a [u8] {
    if is_secret(command, args, index) { REDACTED } else { args.at(index) }
}

fn is_secret(command: &str, args: &Args<'_>, index: usize) -> bool {
    let is_behind = |word: &str, distance: usize| {
        distance < index && args.at(index - distance).eq_ignore_ascii_case(word.as_bytes())
    };
    match command {
        "auth" => index != 0,
        // The user and the password behind AUTH.
        "hello" => is_behind("auth", 1) || is_behind("auth", 2),
        "acl|setuser" => 2 < index,
        "config|set" => SECRET_SETTINGS.iter().any(|name| is_behind(name, 1)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use busload_resp::ArgRange;

    use super::*;

    fn shown_line(command: &str, line: &str) -> String {
        let mut start = 0;
        let ranges: Vec<ArgRange> = line
            .split(' ')
            .map(|word| {
                let range = ArgRange { start, end: start + word.len() as u32 };
                start = range.end + 1;
                range
            })
            .collect();
        let args = Args::new(line.as_bytes(), &ranges, None);
        let words =
            (0..args.len()).map(|index| String::from_utf8_lossy(shown(command, &args, index)));
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn no_password_is_shown_and_everything_else_is() {
        for (command, line, expected) in [
            ("auth", "AUTH pw", "AUTH (redacted)"),
            ("auth", "auth default pw", "auth (redacted) (redacted)"),
            ("hello", "hello 3", "hello 3"),
            (
                "hello",
                "HELLO 3 Auth u pw SETNAME n",
                "HELLO 3 Auth (redacted) (redacted) SETNAME n",
            ),
            (
                "hello",
                "hello 3 setname n auth u pw",
                "hello 3 setname n auth (redacted) (redacted)",
            ),
            ("hello", "hello 3 auth auth auth", "hello 3 auth (redacted) (redacted)"),
            ("config|set", "config set requirepass pw", "config set requirepass (redacted)"),
            (
                "config|set",
                "config set maxmemory 1 RequirePass pw",
                "config set maxmemory 1 RequirePass (redacted)",
            ),
            ("acl|setuser", "acl setuser ada on >pw", "acl setuser ada (redacted) (redacted)"),
            ("set", "set auth pw", "set auth pw"),
        ] {
            assert_eq!(shown_line(command, line), expected);
        }
    }
}

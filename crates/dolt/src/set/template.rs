//! URLs of the stores of a set: one template, filled in with the name of a store.

/// URL of an object store with placeholders in its path: `{name}` for the whole name of a store,
/// `{1}`, `{2}`, ... for its parts between slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreTemplate {
    /// Scheme and host, without a slash at the end.
    host: String,
    /// Path without a slash at its beginning.
    path: Vec<Piece>,
    /// Number of parts of a name.
    part_count: usize,
    /// Query with its question mark, or nothing.
    query: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Name,
    /// Index of a part of the name.
    Part(usize),
}

impl StoreTemplate {
    /// Parses the template of stores whose names have `part_count` parts.
    ///
    /// # Errors
    /// There is no placeholder, one outside the path, one that names have no part for, or two names
    /// would share a URL.
    pub fn parse(text: &str, part_count: usize) -> Result<Self, String> {
        let (location, query) = match text.find('?') {
            Some(at) => text.split_at(at),
            None => (text, ""),
        };
        let host_start = location.find("://").map(|at| at + "://".len()).ok_or_else(expected)?;
        let slash = location[host_start..].find('/').ok_or_else(expected)?;
        let (host, path) = location.split_at(host_start + slash);
        if host.contains('{') || query.contains('{') {
            return Err(format!("a placeholder outside the path; {}", expected()));
        }
        let path = pieces(path.trim_matches('/'), part_count)?;
        let used = |wanted: usize| {
            path.iter().any(|piece| *piece == Piece::Name || *piece == Piece::Part(wanted))
        };
        if let Some(missing) = (0..part_count).find(|index| !used(*index)) {
            return Err(format!(
                "{{{}}} is missing, so different stores would have one URL; {}",
                missing + 1,
                expected()
            ));
        }
        if has_touching_placeholders(&path) {
            return Err(format!(
                "two placeholders without a `/` between them, so different stores could have one \
                 URL; {}",
                expected()
            ));
        }
        Ok(Self { host: host.to_owned(), path, part_count, query: query.to_owned() })
    }

    /// Returns the path of a store in its bucket.
    pub fn path(&self, name: &str) -> String {
        let part = |index: &usize| name.split('/').nth(*index).unwrap_or_default();
        let text = |piece: &Piece| match piece {
            Piece::Literal(text) => text.clone(),
            Piece::Name => name.to_owned(),
            Piece::Part(index) => part(index).to_owned(),
        };
        self.path.iter().map(text).collect()
    }

    /// Returns the name of the store that has this path, which may be none of the template.
    pub fn name_of(&self, path: &str) -> Option<String> {
        let mut parts = vec![None; self.part_count];
        let mut rest = path;
        let mut pieces = self.pieces_by_part().into_iter().peekable();
        while let Some(piece) = pieces.next() {
            let index = match piece {
                Piece::Literal(text) => {
                    rest = rest.strip_prefix(text.as_str())?;
                    continue;
                }
                Piece::Part(index) if !rest.is_empty() => index,
                Piece::Part(_) | Piece::Name => return None,
            };
            // No other placeholder comes before the next slash.
            let end = rest.find('/').unwrap_or(rest.len());
            let behind = match pieces.peek() {
                Some(Piece::Literal(text)) => text.split('/').next().unwrap_or_default(),
                _ => "",
            };
            let part = rest[..end].strip_suffix(behind).filter(|part| !part.is_empty())?;
            parts[index] = Some(part);
            rest = &rest[part.len()..];
        }
        let name = parts.into_iter().collect::<Option<Vec<_>>>()?.join("/");
        (rest.is_empty() && self.path(&name) == path).then_some(name)
    }

    /// Returns the pieces of the path with the whole name as its parts.
    fn pieces_by_part(&self) -> Vec<Piece> {
        let by_part = |piece: &Piece| match piece {
            Piece::Name => {
                let parts = (0..self.part_count).map(Piece::Part);
                let slash = || Piece::Literal("/".to_owned());
                parts.flat_map(|part| [slash(), part]).skip(1).collect()
            }
            piece => vec![piece.clone()],
        };
        self.path.iter().flat_map(by_part).collect()
    }

    /// Returns the URL of a store.
    pub fn url(&self, name: &str) -> String {
        format!("{}/{}{}", self.host, self.path(name), self.query)
    }

    /// Returns the folder above all stores.
    pub fn folder(&self) -> &str {
        match self.path.first() {
            Some(Piece::Literal(text)) => text.rsplit_once('/').map_or("", |(folder, _)| folder),
            _ => "",
        }
    }
}

/// Returns whether a name could end in one placeholder where another name begins the next: only a
/// slash, which no part of a name has, keeps them apart.
fn has_touching_placeholders(path: &[Piece]) -> bool {
    let is_apart = |piece: &Piece| matches!(piece, Piece::Literal(text) if text.contains('/'));
    let mut since_apart = 0;
    path.iter().any(|piece| {
        match piece {
            piece if is_apart(piece) => since_apart = 0,
            Piece::Literal(_) => {}
            Piece::Name | Piece::Part(_) => since_apart += 1,
        }
        1 < since_apart
    })
}

fn expected() -> String {
    "expected a URL like s3://bucket/dolt/{name} or s3://bucket/{1}/dolt/{2}".to_owned()
}

fn pieces(path: &str, part_count: usize) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut rest = path;
    while let Some(open) = rest.find('{') {
        let close = rest[open..].find('}').ok_or_else(expected)? + open;
        if 0 < open {
            pieces.push(Piece::Literal(rest[..open].to_owned()));
        }
        pieces.push(match &rest[open + 1..close] {
            "name" => Piece::Name,
            digits => match digits.parse::<usize>() {
                Ok(number) if (1..=part_count).contains(&number) => Piece::Part(number - 1),
                _ => {
                    return Err(format!(
                        "{{{digits}}} stands for nothing, names have {part_count} parts; {}",
                        expected()
                    ));
                }
            },
        });
        rest = &rest[close + 1..];
    }
    if !rest.is_empty() {
        pieces.push(Piece::Literal(rest.to_owned()));
    }
    let literal = |piece: &Piece| matches!(piece, Piece::Literal(text) if text.contains('}'));
    if pieces.iter().any(literal) {
        return Err(expected());
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fill_in_the_path() {
        let whole = StoreTemplate::parse("s3://b/dolt/{name}?region=x", 2).unwrap();
        assert_eq!(whole.url("org/db"), "s3://b/dolt/org/db?region=x");
        assert_eq!((whole.path("org/db").as_str(), whole.folder()), ("dolt/org/db", "dolt"));
        let parts = StoreTemplate::parse("aws://[t:b]/{2}/of-{1}", 2).unwrap();
        assert_eq!(parts.url("org/db"), "aws://[t:b]/db/of-org");
        assert_eq!(parts.folder(), "");
        let deep = StoreTemplate::parse("file:///a/b/{1}.db", 1).unwrap();
        assert_eq!((deep.url("x").as_str(), deep.folder()), ("file:///a/b/x.db", "a/b"));
    }

    #[test]
    fn a_path_gives_back_the_name_that_filled_it() {
        for template in [
            "s3://b/dolt/{name}",
            "s3://b/{name}.d/x",
            "s3://b/{2}/of-{1}",
            "s3://b/a{1}b/c/{2}/{1}",
        ] {
            let template = StoreTemplate::parse(template, 2).unwrap();
            for name in ["org/db", "a/b", "b/b.d", "of-/of-x"] {
                assert_eq!(template.name_of(&template.path(name)).as_deref(), Some(name));
                for other in ["", "dolt", "dolt/", "dolt/a", "dolt/a/b/c", "x/dolt/a/b"] {
                    assert_eq!(template.name_of(other), None, "{template:?} {other}");
                }
            }
        }
        let twice = StoreTemplate::parse("s3://b/{1}/{1}", 1).unwrap();
        assert_eq!(twice.name_of("x/x").as_deref(), Some("x"));
        assert_eq!(twice.name_of("x/y"), None);
    }

    #[test]
    fn templates_that_lead_nowhere_are_refused() {
        for (text, part) in [
            ("s3://b/dolt", "{1} is missing"),
            ("s3://b/{1}", "{2} is missing"),
            ("s3://b/{3}", "{3} stands for nothing"),
            ("s3://b/{org}/{2}", "{org} stands for nothing"),
            ("s3://{1}/{2}", "outside the path"),
            ("s3://b/{name}?region={1}", "outside the path"),
            ("s3://b/{1}-{2}", "without a `/` between them"),
            ("s3://b/{1}{2}/x", "without a `/` between them"),
            ("s3://b", "expected a URL like"),
            ("b/{name}", "expected a URL like"),
            ("s3://b/{name", "expected a URL like"),
            ("s3://b/{name}}", "expected a URL like"),
        ] {
            let error = StoreTemplate::parse(text, 2).unwrap_err();
            assert!(error.contains(part) && error.contains("{name}"), "{text}: {error}");
        }
    }
}

//! Checks in its plan that Postgres reads keys by an index.
//!
//! The plan is that of the prepared statement for any number of keys, as the session will use it. A
//! unique index may exist and yet be useless, for example when its collation is not the column's:
//! then every batch would read the whole table, and it is better not to start.

use tokio_postgres::{Client, SimpleQueryMessage};

use super::{Schema, schema_error};
use crate::{
    Error,
    cause::describe,
    failure::{self, Class},
};

/// Plan of the read statement, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Nodes that read the relation, such as `Index Scan using objects_pkey on objects`.
    pub(crate) scans: Vec<String>,
    pub(crate) warnings: Vec<String>,
}

impl Plan {
    /// Creates the result for a plan that could not be read, as on servers that resemble Postgres.
    fn unknown(error: &tokio_postgres::Error) -> Self {
        let warning = format!("the plan could not be looked at: {}", describe(error));
        Self { scans: Vec::new(), warnings: vec![warning] }
    }
}

/// Nodes that need an index condition: without one they read their whole index.
const INDEX_SCANS: [&str; 3] = ["Index Scan", "Index Only Scan", "Bitmap Index Scan"];
/// Nodes that read a whole relation.
const WHOLE_SCANS: [&str; 5] = [
    "Seq Scan",
    "Parallel Seq Scan",
    "Sample Scan",
    "Parallel Index Scan",
    "Parallel Index Only Scan",
];
/// Nodes that pass on rows of other nodes.
const OTHERS: [&str; 12] = [
    "Append",
    "Merge Append",
    "Nested Loop",
    "Function Scan",
    "Bitmap Heap Scan",
    "BitmapAnd",
    "BitmapOr",
    "Result",
    "Subquery Scan",
    "Memoize",
    "Sort",
    "Unique",
];
/// Headings of plans that are not the relation's own, such as a policy's.
const FOREIGN: [&str; 3] = ["SubPlan", "InitPlan", "CTE "];

/// Gets the plan of the read statement and judges it.
pub(super) async fn explain(client: &Client, schema: &Schema, read: &str) -> Result<Plan, Error> {
    let empty = vec!["'{}'"; schema.key.len()].join(", ");
    let script = format!(
        "PREPARE busload_check AS {read}; EXPLAIN (COSTS OFF) EXECUTE busload_check({empty}); \
         DEALLOCATE busload_check"
    );
    let messages = match client.simple_query(&script).await {
        Ok(messages) => messages,
        Err(error) if is_of_statement(&error) => {
            // The statement outlives a script that fails behind its first part.
            let _ = client.batch_execute("DEALLOCATE busload_check").await;
            return Ok(Plan::unknown(&error));
        }
        Err(error) => return Err(failure::while_checking(&error)),
    };
    let lines = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    let hint = match schema.index_may_be_too_new() {
        true => "transactions older than it keep Postgres from using it for now",
        false => "is its collation that of the column?",
    };
    judge(&lines.collect::<Vec<_>>()).map_err(|scan| {
        schema_error(format!(
            "reading {} by its key would read all of it ({scan}) although {} is there: {hint}",
            schema.relation, schema.index
        ))
    })
}

/// Returns whether the server refused the statement itself: it has not ended the statement while it
/// waited for a lock, nor the connection.
fn is_of_statement(error: &tokio_postgres::Error) -> bool {
    !matches!(failure::classify(error), Class::Lost | Class::Canceled)
}

/// Returns the text of a line that names a node, without its arrow, and the line's indentation.
fn node(line: &str) -> Option<(usize, &str)> {
    let trimmed = line.trim_start();
    let indent = line.len() - trimmed.len();
    match trimmed.strip_prefix("->") {
        Some(name) => Some((indent, name.trim_start())),
        None => (indent == 0).then_some((0, trimmed)),
    }
}

/// Judges a plan; `Err` is the scan that reads everything.
fn judge(lines: &[&str]) -> Result<Plan, String> {
    let mut plan = Plan::default();
    let mut foreign: Option<usize> = None;
    for (number, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        foreign = foreign.filter(|&outer| indent > outer);
        if FOREIGN.iter().any(|start| line.trim_start().starts_with(start)) {
            foreign = foreign.or(Some(indent));
        }
        let Some((_, name)) = node(line).filter(|_| foreign.is_none()) else {
            continue;
        };
        let is = |kinds: &[&str]| kinds.iter().any(|kind| names(name, kind));
        if is(&INDEX_SCANS) {
            if !has_condition(&lines[number + 1..]) {
                return Err(name.to_owned());
            }
            plan.scans.push(name.to_owned());
        } else if is(&WHOLE_SCANS) {
            return Err(name.to_owned());
        } else if !is(&OTHERS) {
            plan.warnings
                .push(format!("the plan has a step that is not known to be cheap: {name}"));
        }
    }
    Ok(plan)
}

/// Returns whether the line names a node of this kind: `Result` and `Seq Scan on t` are of the
/// kinds `Result` and `Seq Scan`.
fn names(name: &str, kind: &str) -> bool {
    name.strip_prefix(kind).is_some_and(|rest| {
        rest.is_empty()
            || rest.starts_with(" on ")
            || rest.starts_with(" using ")
            || rest.starts_with(" Backward ")
    })
}

/// Returns whether the lines that belong to a node name an index condition.
fn has_condition(following: &[&str]) -> bool {
    let own = following.iter().take_while(|line| node(line).is_none());
    own.into_iter().any(|line| line.trim_start().starts_with("Index Cond:"))
}

#[cfg(test)]
mod tests {
    use super::judge;

    fn lines(plan: &str) -> Vec<&str> {
        plan.lines().filter(|line| !line.trim().is_empty()).collect()
    }

    #[test]
    fn scans_by_an_index_are_good_wherever_they_stand() {
        let plans = [
            "Index Scan using t_pkey on t\n  Index Cond: (k = ANY ($1))",
            "Bitmap Heap Scan on t\n  Recheck Cond: (k = ANY ($1))\n  \
             ->  Bitmap Index Scan on t_pkey\n        Index Cond: (k = ANY ($1))",
            "Append\n  ->  Index Scan using p0_pkey on p0 t_1\n        \
             Index Cond: (k = ANY ($1))\n  ->  Index Only Scan using p1_pkey on p1 t_2\n        \
             Index Cond: (k = ANY ($1))",
            "Nested Loop\n  ->  Function Scan on q\n  ->  Index Scan using t_pkey on t\n        \
             Index Cond: ((a = q.k0) AND (b = q.k1))",
            "Result\n  One-Time Filter: false",
        ];
        for plan in plans {
            let judged = judge(&lines(plan)).expect(plan);
            assert_eq!(judged.warnings, Vec::<String>::new(), "{plan}");
        }
    }

    #[test]
    fn reading_all_of_a_table_or_of_an_index_is_refused() {
        let plans = [
            ("Seq Scan on t\n  Filter: (k = ANY ($1))", "Seq Scan on t"),
            (
                "Index Scan using t_pkey on t\n  Filter: (k = ANY ($1))",
                "Index Scan using t_pkey on t",
            ),
            (
                "Append\n  ->  Index Scan using p0_pkey on p0\n        \
                 Index Cond: (k = ANY ($1))\n  ->  Seq Scan on p1\n        \
                 Filter: (k = ANY ($1))",
                "Seq Scan on p1",
            ),
            (
                "Nested Loop\n  ->  Index Scan using t_pkey on t\n  \
                 ->  Function Scan on q\n        Filter: (t.a = k0)",
                "Index Scan using t_pkey on t",
            ),
        ];
        for (plan, scan) in plans {
            assert_eq!(judge(&lines(plan)), Err(scan.to_owned()));
        }
    }

    #[test]
    fn what_a_policy_reads_is_its_own_business() {
        let plan = "Index Scan using t_pkey on t\n  Index Cond: (k = ANY ($1))\n  \
                    Filter: (hashed SubPlan 1)\n  SubPlan 1\n    ->  Seq Scan on allowed";
        assert_eq!(judge(&lines(plan)).expect("the scan is by the index").scans.len(), 1);
    }

    #[test]
    fn an_unknown_step_only_warns() {
        let plan = "Custom Scan (Citus Adaptive)\n  Task Count: 32";
        assert_eq!(judge(&lines(plan)).expect("nobody knows").warnings.len(), 1);
    }
}

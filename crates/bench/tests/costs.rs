//! The experiment `costs` as a whole, and the report of what it wrote: every price that needs
//! nothing but this machine, and the naive server.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bench;

use std::{collections::BTreeSet, process::Command};

use self::bench::{number, records, succeeded};

fn run(arguments: &str, out: &std::path::Path) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_busload-bench"));
    command.current_dir(out).args(arguments.split_ascii_whitespace()).output().unwrap()
}

#[test]
fn every_price_is_measured_and_becomes_a_page() {
    let out = tempfile::TempDir::new().unwrap();
    let costs = "costs --rounds 1 --table-keys 10000 --first-byte 2 --server-cpu any \
                 --load-cpu any --section memory,system,disk,objects,naive --servers naive \
                 --seconds 0.2 --warm-up 0 --keys 10 --clients 2 --csv costs.csv \
                 --servers-csv servers.csv";
    let shown = succeeded(&run(costs, out.path()));
    let prices = records(out.path(), "costs.csv");
    let medians: Vec<_> = prices.iter().filter(|record| record["round"] == "0").collect();
    let operations: BTreeSet<_> = medians.iter().map(|record| &record["operation"][..]).collect();
    assert!(12 <= operations.len() && operations.contains("object GET"), "{operations:?}\n{shown}");
    for record in &medians {
        let items = number(record, "batch");
        let wanted = number(record, "operation_us") / items;
        assert!((number(record, "item_us") - wanted).abs() <= wanted * 0.01 + 1e-6, "{record:?}");
        assert!(
            0.0 <= number(record, "fixed_us") && 0.0 < number(record, "operation_us"),
            "{record:?}"
        );
    }
    let price = |operation: &str, batch: &str| {
        let is_it =
            |record: &&&bench::Record| record["operation"] == operation && record["batch"] == batch;
        number(medians.iter().find(is_it).unwrap(), "operation_us")
    };
    // No store answers before its distance is over, and a sync is no cheaper than its write.
    assert!(2_000.0 <= price("object GET", "1"));
    assert!(price("pipe call", "1") < price("sync (growing file)", "16384"));
    let servers = records(out.path(), "servers.csv");
    let of_naive = servers.iter().filter(|record| record["server"] == "naive");
    assert!(of_naive.clone().count() == 8, "{servers:?}");
    assert!(of_naive.into_iter().all(|record| 0.0 < number(record, "per_s")), "{servers:?}");
    succeeded(&run("report costs.csv servers.csv --html report.html", out.path()));
    let page = std::fs::read_to_string(out.path().join("report.html")).unwrap();
    assert!(
        operations.iter().all(|operation| page.contains(&format!("<td>{operation}<br>"))),
        "{page}"
    );
    assert!(page.contains("<svg") && page.ends_with("</body></html>\n"));
}

#[test]
fn what_cannot_be_reported_is_refused_with_its_name() {
    let out = tempfile::TempDir::new().unwrap();
    std::fs::write(out.path().join("other.csv"), "a,b\n1\n").unwrap();
    for (arguments, name) in [("report other.csv", "other.csv"), ("report none.csv", "none.csv")] {
        let run = run(arguments, out.path());
        let told = bench::text(&run.stderr);
        assert!(run.status.code() == Some(1) && told.contains(name), "{told}");
    }
    assert!(!out.path().join("report.html").exists());
}

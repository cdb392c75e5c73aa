//! The committed page of commands equals what the table gives. `BUSLOAD_WRITE_DOCS=1` writes it.

use std::path::Path;

#[test]
fn the_page_of_commands_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    let page = busload_pipeline::command::markdown();
    if std::env::var_os("BUSLOAD_WRITE_DOCS").is_some() {
        std::fs::create_dir_all(path.parent().expect("a file is in a folder"))
            .expect("docs can be made");
        std::fs::write(&path, &page).expect("docs can be written");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        page == committed,
        "docs/commands.md is out of date: BUSLOAD_WRITE_DOCS=1 cargo test -p busload-pipeline \
         --test pipeline docs"
    );
}

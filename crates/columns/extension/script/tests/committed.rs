//! Goal: the committed SQL script is the one that the list of functions makes. Method: makes it,
//! and compares.

#[test]
fn the_committed_script_is_what_the_list_makes() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../sql/strongroom_columns--0.1.sql"
    );
    let committed = std::fs::read_to_string(path).expect("the script is committed");
    let made = strongroom_columns_script::script();
    let differs = committed
        .lines()
        .zip(made.lines())
        .position(|(committed, made)| committed != made);
    assert_eq!(
        differs, None,
        "line differs: run `cargo run -p strongroom-columns-script > sql/strongroom_columns--0.1.sql`"
    );
    assert_eq!(committed.len(), made.len());
}

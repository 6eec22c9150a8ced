#[test]
fn errors() {
    let none: Option<i32> = None;
    none.unwrap();
}

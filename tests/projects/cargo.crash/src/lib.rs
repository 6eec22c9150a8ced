#[test]
fn before() {}

#[test]
fn dies() {
    std::process::abort()
}

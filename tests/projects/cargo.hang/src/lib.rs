#[test]
fn before() {}

#[test]
fn hangs() {
    loop { std::thread::park() }
}

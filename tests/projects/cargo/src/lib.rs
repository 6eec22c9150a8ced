/// The sum.
///
/// ```
/// assert_eq!(shop::sum(&[1, 2]), 3);
/// ```
pub fn sum(numbers: &[i32]) -> i32 {
    numbers.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes() {
        assert_eq!(sum(&[1, 2]), 3);
    }

    #[test]
    fn fails() {
        assert_eq!(sum(&[1, 2]), 4);
    }

    #[test]
    #[ignore = "not today"]
    fn is_skipped() {}

    #[test]
    #[should_panic]
    fn panics_as_it_should() {
        panic!("yes");
    }
}

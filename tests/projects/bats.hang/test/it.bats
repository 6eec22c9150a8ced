@test "before" {
  true
}

@test "hangs" {
  tail -f /dev/null
}

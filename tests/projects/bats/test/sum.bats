@test "passes" {
  [ "$((1 + 2))" -eq 3 ]
}

@test "fails" {
  [ "$((1 + 2))" -eq 4 ]
}

@test "errors" {
  no_such_command
}

@test "is skipped" {
  skip "not today"
}

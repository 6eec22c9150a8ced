test_that("it passes", {
  expect_equal(add(1, 2), 3)
})

test_that("it fails", {
  expect_equal(add(1, 2), 4)
})

test_that("it errors", {
  broken()
})

test_that("it is skipped", {
  skip("not today")
})

test_that("it is empty", {})

describe("a suite", {
  it("inside", {
    expect_true(FALSE)
    expect_identical("a", "b")
  })
})

test_that("it warns", {
  warning("careful")
  expect_true(TRUE)
})

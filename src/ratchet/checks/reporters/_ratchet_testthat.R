# A reporter for testthat that writes records as they happen. Sourced with the folder of tests as its argument.
ratchet_say <- local({
  path <- Sys.getenv("_RATCHET_REPORT")
  function(...) {
    row <- jsonlite::toJSON(Filter(Negate(is.null), list(...)), auto_unbox = TRUE, null = "null", digits = 6)
    cat(enc2utf8(as.character(row)), "\n", file = path, append = TRUE, sep = "")
  }
})

RatchetReporter <- R6::R6Class("RatchetReporter",
  inherit = testthat::Reporter,
  public = list(
    tests = NULL, file = "", results = NULL, id = NULL, began = 0, seen = NULL,
    initialize = function(tests) {
      super$initialize()
      self$tests <- tests
      self$seen <- list()
      self$capabilities$parallel_support <- FALSE
    },
    start_reporter = function() {
      ratchet_say(kind = "start", nonce = Sys.getenv("_RATCHET_NONCE"), version = as.character(utils::packageVersion("testthat")))
    },
    start_file = function(filename) self$file <- file.path(self$tests, basename(filename)),
    start_test = function(context, test) {
      self$id <- self$named(test)
      self$results <- list()
      self$began <- proc.time()[["elapsed"]]
      ratchet_say(kind = "test_start", id = self$id)
    },
    add_result = function(context, test, result) {
      # Errors between tests belong to the file.
      if (is.null(self$id)) {
        if (inherits(result, "expectation_error")) self$broken(result)
        return(invisible())
      }
      self$results <- c(self$results, list(result))
    },
    end_test = function(context, test) {
      if (is.null(self$id)) return(invisible())
      row <- self$outcome(self$results)
      line <- self$line_of(self$results)
      do.call(ratchet_say, c(list(
        kind = "phase", id = self$id, when = "call", last = TRUE, duration = proc.time()[["elapsed"]] - self$began,
        file = self$file, line = line, name = test
      ), row))
      self$id <- NULL
    },
    end_reporter = function() ratchet_say(kind = "end", nonce = Sys.getenv("_RATCHET_NONCE")),

    named = function(test) {
      id <- paste0(self$file, "::", test)
      count <- (if (is.null(self$seen[[id]])) 0 else self$seen[[id]]) + 1
      self$seen[[id]] <- count
      if (count > 1) paste0(id, " #", count) else id
    },
    line_of = function(results) {
      places <- Filter(Negate(is.null), lapply(results, function(each) each$srcref))
      if (length(places)) as.integer(places[[1]])[[1]] else 0L
    },
    outcome = function(results) {
      is <- function(kind) Filter(function(each) inherits(each, paste0("expectation_", kind)), results)
      red <- c(is("error"), is("failure"))
      if (length(red)) return(self$failed(red[[1]]))
      skipped <- is("skip")
      if (length(skipped)) {
        return(list(outcome = "skipped", reason = sub("^Reason: ", "", conditionMessage(skipped[[1]]))))
      }
      list(outcome = "passed")
    },
    failed = function(result) {
      error <- inherits(result, "expectation_error")
      line <- self$line_of(list(result))
      said <- cli::ansi_strip(conditionMessage(result))
      # testthat prints one line per value, unless only a part of a larger value differs.
      side <- function(name) {
        found <- regmatches(said, gregexpr(paste0("(?m)^ *`", name, "`: +(.+)$"), said, perl = TRUE))[[1]]
        if (!error && length(found) == 1) trimws(sub("^[^:]*:", "", found))
      }
      list(
        outcome = "failed", error = error, type = if (error) "error" else "expectation_failure", message = said,
        expected = side("expected"), actual = side("actual"),
        frames = if (line) list(list(file = self$file, line = line)) else list()
      )
    },
    broken = function(result) {
      ratchet_say(
        kind = "broken", tool = "R", file = self$file, line = self$line_of(list(result)), type = "error",
        message = cli::ansi_strip(conditionMessage(result))
      )
    }
  )
)

# A file that R cannot parse would end the whole run: report it and leave it out.
ratchet_unparsable <- function(path) {
  said <- tryCatch({ parse(path, keep.source = FALSE); NULL }, error = conditionMessage)
  if (is.null(said)) return(FALSE)
  at <- regmatches(said, regexec(":([0-9]+):([0-9]+): ([^\n]*)", said))[[1]]
  place <- if (length(at)) as.integer(at[2:3]) else c(0L, 0L)
  ratchet_say(
    kind = "broken", tool = "R", file = path, line = place[[1]], column = place[[2]], type = "SyntaxError",
    message = if (length(at)) at[[4]] else said
  )
  TRUE
}

local({
  given <- commandArgs(TRUE)
  reporters <- list(RatchetReporter$new(given[[1]]), testthat::CheckReporter$new())
  files <- list.files(given[[1]], "^test.*\\.[rR]$", full.names = TRUE)
  if (length(given) > 1) files <- files[basename(files) %in% given[-1]]
  broken <- vapply(files, ratchet_unparsable, TRUE)
  names <- sub("\\.[rR]$", "", sub("^test[-_]?", "", basename(files[!broken])))
  quoted <- gsub("([][{}()+*^$|\\\\?.])", "\\\\\\1", names)
  if (length(names)) {
    testthat::test_local(
      ".", reporter = testthat::MultiReporter$new(reporters), filter = paste0("^(", paste(quoted, collapse = "|"), ")$"),
      stop_on_failure = TRUE, load_package = if (requireNamespace("pkgload", quietly = TRUE)) "source" else "installed"
    )
  }
  if (any(broken)) quit(status = 1)
})

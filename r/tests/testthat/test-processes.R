test_that("workers of mclapply count as children", {
  tracker <- ResourceTracker$new(interval = 0.02, discover_cloud = FALSE)
  parallel::mclapply(1:2, function(n) burn(0.3), mc.cores = 2)
  tracker$stop()
  process <- tracker$process_metrics
  expect_gte(max(process$children), 2)
  spent <- sum(process$utime, process$stime)
  expect_gte(spent, 0.6 * 0.98)
})

test_that("children = FALSE leaves children out", {
  tracker <- ResourceTracker$new(interval = 0.05, children = FALSE, discover_cloud = FALSE)
  parallel::mclapply(1:2, function(n) burn(0.1), mc.cores = 2)
  tracker$stop()
  expect_true(all(is.na(tracker$process_metrics$children)))
  expect_false(tracker$children)
})

test_that("a tracker is read-only in a forked child", {
  tracker <- ResourceTracker$new(interval = 0.05, discover_cloud = FALSE)$wait_for_samples(2)
  seen <- parallel::mclapply(c("read", "stop", "cleanup", "collect"), function(action) {
    rows <- nrow(tracker$process_metrics)
    figures <- tracker$stats()
    if (action == "stop") tracker$stop()
    if (action == "cleanup") tracker$cleanup()
    if (action == "collect") {
      rm(tracker, envir = environment(sys.function()))
      gc()
    }
    c(rows = rows, columns = length(figures), running = if (action == "read") tracker$running else NA)
  }, mc.cores = 2)
  for (child in seen) {
    expect_false(inherits(child, "try-error"), info = as.character(child))
    expect_gte(child[["rows"]], 2)
    expect_identical(child[["columns"]], 9L)
  }
  expect_identical(seen[[1]][["running"]], 0L, info = "the sampler runs in the parent")
  expect_true(tracker$running)
  rows <- tracker$n_samples
  tracker$wait_for_samples(rows + 2)
  expect_gt(nrow(tracker$process_metrics), rows)
  tracker$stop()
})

test_that("a forked child can start its own tracker", {
  parents <- ResourceTracker$new(interval = 0.05, discover_cloud = FALSE)
  children <- parallel::mclapply(1:2, function(n) {
    own <- ResourceTracker$new(interval = 0.02, discover_cloud = FALSE)$wait_for_samples(2)$stop()
    all(own$process_metrics$pid == Sys.getpid()) && own$pid != parents$pid
  }, mc.cores = 2)
  expect_identical(children, list(TRUE, TRUE))
  parents$stop()
})

test_that("workers of a cluster can start their own trackers", {
  tracker <- ResourceTracker$new(interval = 0.05, discover_cloud = FALSE)
  cluster <- parallel::makeCluster(2)
  on.exit(parallel::stopCluster(cluster))
  paths <- .libPaths()
  rows <- parallel::clusterCall(cluster, function(paths) {
    .libPaths(paths)
    tracker <- resource.tracker::ResourceTracker$new(interval = 0.02, discover_cloud = FALSE)
    tracker$wait_for_samples(2)$stop()
    tracker$n_samples
  }, paths)
  expect_true(all(unlist(rows) >= 2))
  # A tracker that is sent to a worker raises an error.
  answer <- parallel::clusterCall(cluster, function(tracker) tryCatch(tracker$stats(), error = class), tracker)
  expect_true(all(vapply(answer, function(class) "resource_tracker_state_error" %in% class, NA)))
  expect_true(tracker$running)
  tracker$stop()
})

test_that("options(warn = 2) makes no warning of a tracker an error", {
  program <- c(
    "options(warn = 2)",
    "library(resource.tracker)",
    "tracker <- ResourceTracker$new(interval = 0.05, discover_cloud = FALSE)",
    "cluster <- parallel::makeCluster(2)",
    "sums <- parallel::clusterCall(cluster, function() sum(sqrt(seq_len(1e6))))",
    "tracker$wait_for_samples(2)",
    "parallel::stopCluster(cluster)",
    "tracker$stop()",
    "Sys.setenv(XDG_DATA_HOME = '/proc/no-such-folder')",
    "value <- track(42, job = 'lost', interval = 0.05, discover_cloud = FALSE)",
    "cat(length(sums), tracker$stats()$process_memory$max > 0, value)"
  )
  output <- run_program(program)
  # The history cannot be written. The workers of the cluster, which leave the process tree, are no reason to warn.
  expect_match(grep("^Warning", output, value = TRUE), "^Warning: the run is not in the history")
  expect_identical(tail(output, 1), "2 TRUE 42")
})

test_that("an interrupt ends wait_for_samples at once", {
  program <- c(
    "library(resource.tracker)",
    "tracker <- ResourceTracker$new(interval = 3600, discover_cloud = FALSE)",
    "system(sprintf('(sleep 3; kill -INT %d) &', Sys.getpid()))",
    "began <- proc.time()[['elapsed']]",
    "how <- tryCatch({ tracker$wait_for_samples(5, timeout = 60); 'waited' }, interrupt = function(i) 'interrupted')",
    "cat(how, if (proc.time()[['elapsed']] - began < 7.5) 'at once' else 'late', tracker$running)"
  )
  expect_identical(run_program(program), "interrupted at once TRUE")
})

test_that("the exit of R is not delayed", {
  program <- c("library(resource.tracker)", "tracker <- ResourceTracker$new(interval = 3600)", "cat('end')")
  took <- system.time(expect_identical(run_program(program), "end"))
  expect_lt(took[["elapsed"]], 10)
})

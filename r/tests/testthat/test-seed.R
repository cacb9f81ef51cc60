# The calls of the original package's introduction return values of the same shape.

shape <- function(object, ...) utils::capture.output(utils::str(object, ...))
printed <- function(object) utils::capture.output(print(object))

test_that("the session of the introduction works", {
  tracker <- ResourceTracker$new()

  numbers <- 1:1e6
  window <- 3
  rollavg <- sapply(
    seq_len(length(numbers) - window + 1),
    function(i) mean(numbers[i:(i + window - 1)])
  )
  expect_identical(rollavg[1:3], c(2, 3, 4))

  stats <- printed(tracker$wait_for_samples(2)$stats())
  expect_identical(stats[1:3], c("List of 9", " $ process_cpu_usage        :List of 2", stats[3]))
  expect_match(stats, "^List of 9$|^ \\$ [a-z_]+ *:List of [12]$|^  [.][.]\\$ (mean|max *|sum|duration): num -?[0-9.e+]+$")
  headings <- sub("^ \\$ ([a-z_]+) *:List of ([12])$", "\\1 \\2", grep("^ \\$", stats, value = TRUE))
  expect_identical(headings, c(
    "process_cpu_usage 2", "process_memory 2", "process_gpu_usage 2", "process_gpu_vram 2", "process_gpu_utilized 2",
    "system_disk_space_used_gb 1", "system_net_recv_bytes 1", "system_net_sent_bytes 1", "timestamp 1"
  ))

  resources <- printed(tracker$recommend_resources())
  expect_length(resources, 5)
  expect_identical(resources[1], "List of 4")
  expect_match(resources[-1], "^ \\$ (cpu   |memory|gpu   |vram  ): int [0-9]+$")

  server <- tracker$recommend_server()
  lines <- printed(server)
  expect_match(lines[1], "^List of [0-9]+$")
  expect_identical(lines, shape(server), info = "prints like str()")
  introduced <- c(
    "vendor_id", "server_id", "description", "family", "vcpus", "hypervisor", "cpu_allocation", "cpu_cores",
    "cpu_architecture", "cpu_manufacturer", "cpu_family", "cpu_model", "cpu_l1_cache", "cpu_l2_cache", "cpu_l3_cache",
    "cpu_flags", "memory_amount", "storage_size", "inbound_traffic", "outbound_traffic", "ipv4", "price"
  )
  expect_true(all(introduced %in% names(server)))
  expect_type(server$vendor_id, "character")
  expect_type(server$vcpus, "integer")
  expect_type(server$memory_amount, "integer")
  expect_type(server$price, "double")

  tracker$stop()
  rows <- tracker$n_samples
  columns_of <- function(lines) trimws(sub("^ \\$ (.*?) *: .*$", "\\1", lines[-1]))
  expect_table <- function(frame, columns) {
    lines <- shape(frame)
    expect_identical(lines[1], sprintf("'data.frame':\t%d obs. of  %d variables:", rows, length(columns)))
    expect_identical(columns_of(lines), columns)
    expect_match(lines[2], "^ \\$ timestamp +: POSIXct, format: \"20")
    expect_match(lines[-(1:2)], "^ \\$ [a-z_]+ *: num  ")
  }
  expect_table(tracker$system_metrics, system_columns)
  expect_table(tracker$process_metrics, process_columns)
  expect_table(
    tracker$get_combined_metrics(),
    c("timestamp", paste0("system_", system_columns[-1]), paste0("process_", process_columns[-1]))
  )

  opened <- NULL
  before <- options(browser = function(url) opened <<- url)
  on.exit(options(before))
  report <- tracker$report()
  report$browse()
  file <- sub("^file://", "", opened)
  on.exit(unlink(dirname(file), recursive = TRUE), add = TRUE)
  expect_true(file.exists(file))
})

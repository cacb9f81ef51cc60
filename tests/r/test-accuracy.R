# Compares reported with true CPU time of jobs that run between `ResourceTracker$new()` and `stop()`.
#
# The true CPU time comes from a cgroup that contains only the program. This needs root; without it the tests fail instead
# of being skipped.

nobody <- 65534L

program_text <- '
arguments <- commandArgs(trailingOnly = TRUE)
kind <- arguments[1]
group <- arguments[2]
cat("0", file = file.path(group, "cgroup.procs"))
library(resource.tracker)

# The sampling thread is in the group but not part of the job, so its CPU time is subtracted.
thread_s <- function(name) {
  tasks <- list.files("/proc/self/task", full.names = TRUE)
  # A thread that has just ended has no name: its file is missing or empty.
  name_of <- function(task) {
    name <- tryCatch(suppressWarnings(readLines(file.path(task, "comm"))), error = function(e) character())
    c(name, "")[1]
  }
  names <- vapply(tasks, name_of, "")
  thread <- tasks[names == name]
  stopifnot(length(thread) == 1)
  scan(file.path(thread, "schedstat"), quiet = TRUE)[1] / 1e9
}
# The group is read last, so that the CPU time of this function counts as the job\'s both times.
true_s <- function(thread = "resource-tracke") {
  own <- thread_s(thread)
  v1 <- file.path(group, "cpuacct.usage")
  if (file.exists(v1)) return(as.numeric(readLines(v1)) / 1e9 - own)
  usage <- readLines(file.path(group, "cpu.stat"), n = 1)
  as.numeric(sub("usage_usec ", "", usage)) / 1e6 - own
}
# Compilation by R must not happen between these readings and those of the tracker.
compiler::enableJIT(0)
for (n in 1:3) true_s(readLines("/proc/self/comm"))
burn <- function(seconds) {
  cpu <- function() sum(proc.time()[c("user.self", "sys.self")])
  end <- cpu() + seconds
  while (cpu() < end) sum(sqrt(seq_len(1e4)))
}
# A shell loop of at least 20 ms.
count <- 10000
repeat {
  shell <- sprintf("i=0; while [ $i -lt %d ]; do i=$((i+1)); done", count)
  if (sum(system.time(system(shell))[c("user.child", "sys.child")]) >= 0.02) break
  count <- 2 * count
}
jobs <- list(
  one = function() burn(2),
  # Each shell uses about 20 ms.
  system = function() for (n in 1:75) system(shell),
  mclapply = function() parallel::mclapply(1:8, function(n) burn(0.25), mc.cores = 2, mc.preschedule = FALSE),
  cluster = function() {
    cluster <- parallel::makeCluster(2)
    parallel::clusterCall(cluster, burn, 1)
    parallel::stopCluster(cluster)
  }
)
tracker <- ResourceTracker$new(discover_cloud = FALSE)
before <- true_s()
jobs[[kind]]()
# Wait for workers that are still ending.
for (n in 1:100) {
  if (length(readLines(file.path(group, "cgroup.procs"))) == 1) break
  Sys.sleep(0.05)
}
true <- true_s() - before
suppressWarnings(tracker$stop(), classes = "resource_tracker_warning")
reported <- sum(tracker$process_metrics$utime, tracker$process_metrics$stime)
cat("figures", reported, true, tracker$snapshot()$run$cpu_source, "\n")
'

run_job <- function(kind, uid) {
  # A plain user cannot read every folder, so package and program are copied to an open folder.
  folder <- tempfile("resource-tracker-accuracy-", tmpdir = "/tmp")
  # Version 1 if it is mounted, otherwise version 2, in which a plain user may only move a process that is already below a
  # group of this user.
  root <- "/sys/fs/cgroup/cpuacct"
  if (!file.exists(root)) root <- "/sys/fs/cgroup"
  outer <- file.path(root, basename(folder))
  group <- file.path(outer, "job")
  stopifnot(dir.create(outer), dir.create(group), dir.create(folder))
  on.exit({
    unlink(folder, recursive = TRUE)
    system2("rmdir", c(group, outer))
  })
  Sys.chmod(folder, "777", use_umask = FALSE)
  system2("chown", c(uid, file.path(c(outer, group), "cgroup.procs")))
  file.copy(find.package("resource.tracker"), folder, recursive = TRUE)
  file <- file.path(folder, "program.R")
  writeLines(program_text, file)
  environment <- c(
    "env", "-i", "PATH=/usr/bin:/bin", paste0("HOME=", folder), paste0("TMPDIR=", folder), paste0("R_LIBS=", folder),
    "RESOURCE_TRACKER_OFFLINE=1"
  )
  user <- c(paste0("--reuid=", uid), paste0("--regid=", uid), "--clear-groups")
  program <- c("setpriv", user, environment, "Rscript", "--vanilla", file, kind, group)
  enter <- sprintf("echo $$ > %s/cgroup.procs && exec", outer)
  output <- suppressWarnings(system(paste(c(enter, program, "2>&1"), collapse = " "), intern = TRUE))
  line <- grep("^figures ", output, value = TRUE)
  if (length(line) != 1) stop(paste(output, collapse = "\n"))
  words <- strsplit(line, " ")[[1]]
  list(reported = as.numeric(words[2]), true = as.numeric(words[3]), source = words[4])
}

steal_s <- function() {
  as.numeric(strsplit(readLines("/proc/stat", n = 1), " +")[[1]][[9]]) / 100
}

for (kind in c("one", "system", "mclapply", "cluster")) {
  for (uid in c(0L, nobody)) {
    test_that(sprintf("reported CPU time matches the kernel: %s as user %d", kind, uid), {
      # Workers of a cluster detach from R. The perf counter still follows them, but it stops before the kernel frees
      # the memory of an ending process.
      least <- if (kind == "cluster") 0.97 else 0.98
      # Steal time is in the perf counter but not in the kernel's account (docs/numbers.md). A run with 1 % of steal or
      # more is repeated, and the run with the least steal counts.
      least_steal <- Inf
      for (attempt in 1:4) {
        before_s <- steal_s()
        job <- run_job(kind, uid)
        steal <- (steal_s() - before_s) / job$true
        cat(sprintf(
          "\n%-9s uid %-5d reported %.3f s, true %.3f s, ratio %.4f by %s, %.3f steal", kind, uid, job$reported,
          job$true, job$reported / job$true, job$source, steal
        ))
        if (steal < least_steal) {
          least_steal <- steal
          ratio <- job$reported / job$true
        }
        if (steal < 0.01) break
      }
      expect_gte(ratio, least)
      expect_lte(ratio, 1.02)
    })
  }
}

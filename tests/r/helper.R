# What these tests need of the repository and of the machine is given by run.sh; a missing part fails.

Sys.setenv(RESOURCE_TRACKER_OFFLINE = "1")
repository <- normalizePath("../..")
program <- Sys.getenv("RESOURCE_TRACKER")
stopifnot(file.exists(program), requireNamespace("resource.tracker"))

read_whole <- function(file) {
  text <- readChar(file, file.size(file), useBytes = TRUE)
  Encoding(text) <- "UTF-8"
  text
}

# Runs the command; gives its output.
command <- function(...) {
  output <- suppressWarnings(system2(program, shQuote(c(...)), stdout = TRUE, stderr = TRUE))
  if (!is.null(attr(output, "status"))) stop(paste(output, collapse = "\n"))
  output
}

# A table that the command or a golden file shows as CSV text.
read_table <- function(lines) {
  frame <- utils::read.csv(text = lines, check.names = FALSE)
  frame[] <- lapply(frame, as.double)
  frame
}

# A table of R's, its moments as the numbers that files hold.
plain_table <- function(frame) {
  frame[] <- lapply(frame, as.double)
  frame
}

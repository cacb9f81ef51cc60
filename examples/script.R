# Tracks a script and writes a report: Rscript examples/script.R [REPORT]
library(resource.tracker)

tracker <- ResourceTracker$new(interval = 0.2)
model <- lm(y ~ x, data.frame(x = seq_len(2e5), y = rnorm(2e5)))
sorted <- sort(runif(5e6))
tracker$stop()

str(tracker$recommend_resources())
report <- commandArgs(trailingOnly = TRUE)
tracker$report()$save(if (length(report)) report[[1]] else "report.html")

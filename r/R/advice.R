# The text of `advise()`.

#' @rdname resource_tracker_list
#' @export
print.resource_tracker_advice <- function(x, ...) {
  # Names of servers come from the network and may hold control characters.
  cat(encodeString(format(x, ...)), sep = "\n")
  invisible(x)
}

#' @export
format.resource_tracker_advice <- function(x, ...) {
  request <- x$request
  runs <- if (x$runs == 1) "1 run" else sprintf("%d runs", x$runs)
  why <- function(part) if (is.null(part)) "" else sprintf("  (%s)", part$why)
  here <- x$servers$here
  anywhere <- x$servers$anywhere
  server <- if (is.null(here)) anywhere else here
  is_cheaper <- !is.null(here$price) && !is.null(anywhere$price) && anywhere$price < here$price
  cost <- x$cost$recommended
  c(
    sprintf("<Advice> request for the next run, from %s", runs),
    sprintf("  CPUs    %d%s", request$cpus, why(x$cpu)),
    sprintf("  memory  %s%s", mib(request$memory_bytes), why(x$memory)),
    sprintf("  GPUs    %d%s", request$gpus, why(x$gpu)),
    if (request$vram_bytes > 0) sprintf("  VRAM    %s", mib(request$vram_bytes)),
    sprintf("  server  %s", if (is.null(server)) "none fits" else server_line(server)),
    if (is_cheaper) sprintf("          anywhere: %s", server_line(anywhere)),
    if (!is.null(cost)) sprintf("  cost    %s per run", human_usd(cost$usd)),
    sprintf("note: %s", unlist(x$servers$notes)),
    sprintf("warning: %s", messages_of(x$warnings)),
    messages_of(x$findings),
    what_if_lines(as.data.frame(x))
  )
}

# Predicted time and cost of a run by number of CPUs.
what_if_lines <- function(rows) {
  if (!nrow(rows)) return(NULL)
  text <- function(values, as_text) vapply(values, function(value) if (is.na(value)) "" else as_text(value), "")
  lines <- rbind(c("CPUs", "predicted time", "cost of a run", "cheapest server"), cbind(
    rows$cpus, text(rows$predicted_seconds, human_duration), text(rows$cost_usd, human_usd),
    ifelse(is.na(rows$server), "", paste(rows$vendor_id, rows$server))
  ))
  lines[, 1:3] <- apply(lines[, 1:3, drop = FALSE], 2, format, justify = "right")
  lines[, 4] <- format(lines[, 4])
  marks <- c("", paste0(ifelse(rows$cheapest, "  cheapest", ""), ifelse(rows$fastest, "  fastest", "")))
  trimws(paste0(apply(lines, 1, paste, collapse = "  "), marks), "right")
}

#' @rdname resource_tracker_list
#' @export
as.data.frame.resource_tracker_advice <- function(x, ...) {
  row <- function(option) {
    cell <- function(value, missing) if (is.null(value)) missing else value
    data.frame(
      cpus = option$cpus, predicted_seconds = cell(option$predicted_seconds, NA_real_),
      cost_usd = cell(option$cost_usd, NA_real_), vendor_id = cell(option$server$vendor_id, NA_character_),
      server = cell(option$server$name, NA_character_), region = cell(option$server$region, NA_character_),
      usd_per_hour = cell(option$server$usd_per_hour, NA_real_), cheapest = isTRUE(option$cheapest),
      fastest = isTRUE(option$fastest)
    )
  }
  do.call(rbind, c(list(row(list(cpus = NA_integer_))[0, ]), lapply(x$what_if, row)))
}

# Vendor, name, price, region and CPU class of a server, and date and source of the price.
server_line <- function(server) {
  price <- if (is.null(server$price)) "" else sprintf(" at %s/h", human_usd(server$price))
  region <- if (is.null(server$price_region)) "its cheapest region" else server$price_region
  about <- paste(c(tolower(server$cpu_allocation), server$cpu_architecture), collapse = " ")
  sprintf(
    "%s %s%s in %s (%s, price of %s, %s)", server$vendor_id, server$name, price, region, about, server$price_date,
    server$price_source
  )
}

messages_of <- function(entries) vapply(entries, function(entry) entry$message, "")

#' @rdname resource_tracker_list
#' @export
summary.resource_tracker_advice <- function(object, ...) summary(shown(object$request))

# Tests use no network, and no history of the user.
Sys.setenv(RESOURCE_TRACKER_OFFLINE = "1", XDG_DATA_HOME = tempfile("data-"))
Sys.unsetenv(c("RESOURCE_TRACKER_JOB", "RESOURCE_TRACKER_STORE", "RESOURCE_TRACKER_TAGS"))

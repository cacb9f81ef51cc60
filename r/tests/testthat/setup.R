# No test asks anybody on a network.
Sys.setenv(RESOURCE_TRACKER_OFFLINE = "1")

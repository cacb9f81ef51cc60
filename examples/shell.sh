#!/bin/sh
# A pipeline with its steps tracked under one job name each; the second run of a job is compared with the first.
set -eu
for step in fetch sort; do
    case $step in
        fetch) work='seq 200000 > numbers' ;;
        sort) work='sort -R numbers > sorted' ;;
    esac
    resource-tracker run --quiet --job "$step" --tag "pipeline=nightly" -- sh -c "$work"
done
resource-tracker list
resource-tracker recommend sort

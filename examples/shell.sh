#!/bin/sh
# A pipeline of two steps. Each step is a job of its own, so that each has its own history and advice.
set -eu
resource-tracker run --quiet --job fetch --tag pipeline=nightly -- sh -c 'seq 200000 > numbers'
resource-tracker run --quiet --job sort --tag pipeline=nightly -- sh -c 'sort -R numbers > sorted'
resource-tracker list --tag pipeline=nightly
resource-tracker recommend sort

#!/bin/sh
# Curate a bucket as a job of a Ray cluster that is up: RAY_ADDRESS is its dashboard, e.g. http://head:8265.
#
#   RAY_ADDRESS=http://head:8265 sh ray_job_submit.sh s3://films/in s3://films/out 400
#
# Every node has the same version of `stepline[ray,cloud]` and finds the bucket's credentials by itself; the machine that
# submits needs `ray[default]` alone. The driver runs on the head: the job outlives this shell (`ray job status`,
# `ray job logs`, `ray job stop`). Whatever ended it, the same command under another id goes on where it was.
set -eu
source=$1 out=$2 workers=$3
exec ray job submit --no-wait --submission-id "curate-$(date +%Y%m%d-%H%M%S)" -- \
    stepline curate "$source" --recipe howtostep --out "$out" --engine ray --workers "$workers" --set engine.address=auto

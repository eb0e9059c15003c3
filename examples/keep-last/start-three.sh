# Start the CronJob three times, one after the other.
set -e
for number in 1 2 3; do
    kubectl -n example-keep-last create job "nightly-$number" --from=cronjob/nightly
    kubectl -n example-keep-last wait --for=condition=Complete "job/nightly-$number" --timeout=2m
    sleep 1
done

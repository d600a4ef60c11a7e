# Count the words of every text in a folder.
set -eu
for text in "$1"/*.txt; do
  echo "$text" >> seen.log
  wc -w "$text"
done

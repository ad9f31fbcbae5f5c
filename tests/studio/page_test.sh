#!/usr/bin/env bash
# The studio's page: built anew it is the file in the repository, and it does what it should in a real browser beside a real
# training. Exits with 77, which ctest shows as skipped, where node or Chromium cannot be had; the reason is printed.
#   page_test.sh SOURCE_FOLDER BUILD_FOLDER PROGRAM [PART ...]
set -euo pipefail
source=$1 build=$2 program=$3
tools=$build/page
reason=$("$source/scripts/install-page-tools" "$tools") || { echo "skipped: $reason"; exit 77; }

cd "$tools"
if grep -n '"resolved"' "$source/web/package-lock.json" | head -3 | grep .; then
  echo "web/package-lock.json names hosts of packages; try: npm install with web/.npmrc"
  exit 1
fi
npx --no-install tsc --noEmit || { echo "the page's types are wrong"; exit 1; }
npx --no-install vite build --outDir dist --emptyOutDir >vite.log 2>&1 || { cat vite.log; exit 1; }
cmp dist/index.html "$source/web/built/studio.html" \
  || { echo "web/built/studio.html is not what web/src gives; try: cd web && npm install && npm run keep"; exit 1; }
echo "the built page is the one in the repository"
rm -rf "$tools/test" && mkdir "$tools/test"
cp -r "$source"/tests/studio/{page,beside_training.mjs} "$tools/test/"
exec node "$tools/test/page/page_test.mjs" "$program" "$source" "${@:4}"

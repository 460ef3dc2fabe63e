#!/usr/bin/env bash
# Packs what a run on the GPU machine needs into build/gpu/NAME/: stripped binaries, liblevada_cuda.so and the shared libraries
# that machine lacks. It has no network and takes at most 64 MiB a call.
#
#   scripts/gpu-bundle.sh NAME BINARY…     e.g. scripts/gpu-bundle.sh serve build/release/levada
#   there: build/gpu/NAME/run BINARY ARGUMENTS…   (from the repository's root; unpacks itself once)
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 2 ] || { sed -n '2,7p' "$0"; exit 2; }

folder="build/gpu/$1"; shift
rm -rf "$folder"; mkdir -p "$folder/stage/lib"
for binary in "$@" build/release/liblevada_cuda.so; do
  [ -e "$binary" ] || continue
  strip -o "$folder/stage/$(basename "$binary")" "$binary"
done
# Not carried: what belongs to the C library, and torch and CUDA, which are there.
ldd "$@" build/release/liblevada_cuda.so | awk '$3 ~ /^\// {print $3}' | sort -u |
  { grep -v -E '/(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|ld-linux[^/]*|libtorch[^/]*|libc10[^/]*|libcu[^/]*|libnv[^/]*)\.so' || true; } |
  xargs -r -I{} cp -L {} "$folder/stage/lib/"
tar -C "$folder/stage" -cJf "$folder/bundle.tar.xz" .
rm -r "$folder/stage"

cat > "$folder/run" <<'RUN'
#!/usr/bin/env bash
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
if [ ! -e "$here/unpacked/done" ] || [ "$here/bundle.tar.xz" -nt "$here/unpacked/done" ]; then
  rm -rf "$here/unpacked"; mkdir "$here/unpacked"
  tar -C "$here/unpacked" -xJf "$here/bundle.tar.xz"
  python3 - > "$here/unpacked/paths" <<'PY'
import glob, os, sysconfig
packages = sysconfig.get_paths()["purelib"]
print(":".join([packages + "/torch/lib", *sorted(glob.glob(packages + "/nvidia/*/lib"))]))
PY
  touch "$here/unpacked/done"
fi
export LD_LIBRARY_PATH="$here/unpacked/lib:$(cat "$here/unpacked/paths")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
program="$1"; shift
exec "$here/unpacked/$program" "$@"
RUN
chmod +x "$folder/run"
ls -l "$folder"

# To be sourced by the scripts of this folder that install: a test must not make `uninstall` forget
# what the owner of the build folder installed.

# keep_manifest BUILD_DIR FOLDER: remember the list of installed files in FOLDER.
keep_manifest() {
    manifest=$1/install_manifest.txt
    kept=$2/kept_manifest
    [ ! -f "$manifest" ] || cp -p "$manifest" "$kept"
}

restore_manifest() {
    [ -n "${manifest:-}" ] || return 0
    if [ -f "$kept" ]; then cp -p "$kept" "$manifest"; else rm -f "$manifest"; fi
}

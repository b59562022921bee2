#include "runtime/node/ssh_start_script.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/node/node_starter.hpp"
#include "runtime/process/shell_word.hpp"

namespace troupe {
namespace {

/// For any POSIX shell, with coreutils, grep, findutils and tar. The lines are joined by blanks,
/// since some login shells take no quoted words of several lines: a statement ends with a
/// semicolon. Arguments: agent_flag, build_flag, and those of ssh_start_command.
constexpr const char* script = R"sh(
agent=$1; print_build=$2; program=$3; build=$4; copy=$5; folder=$6; shift 6;
say() { echo "troupe: $*"; };
die() { rm -rf "$part"; say "failed: $*"; exit 1; };
part=; mask=$(umask); umask 077;
cache=${XDG_CACHE_HOME:-$HOME/.cache}/troupe/programs; copy=$cache/$copy;
libraries=${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH};
is_it() { [ "$("$1" "$print_build" 2>/dev/null)" = "$build" ]; };
works() { name=$(ls "$1/bin" 2>/dev/null | grep -v "[.]so" | head -n 1);
  [ -n "$name" ] && (LD_LIBRARY_PATH=$1/lib/troupe$libraries; export LD_LIBRARY_PATH;
    is_it "$1/bin/$name"); };
start() { say ready; exec 1>&2; [ -z "$folder" ] || cd "$folder" 2>/dev/null; umask "$mask";
  exec env "$@" "$program" "$agent"; };
start_copy() { touch "$copy"; program=$copy/bin/$name;
  start "$@" "LD_LIBRARY_PATH=$copy/lib/troupe$libraries"; };
trust() { for dir in "$cache" "${cache%/*}" "${cache%/*/*}"; do
    [ -d "$dir" ] || continue;
    [ "$dir" = "${cache%/*/*}" ] || [ -O "$dir" ] || die "$dir belongs to somebody else";
    case $(ls -ld "$dir/.") in
      ?????????[tT]*) ;;
      ?????w*|????????w*) die "others may write $dir: chmod go-w it";; esac; done; };
is_it "$program" && start "$@";
trust;
works "$copy" && start_copy "$@";
say absent; read -r bytes hash || exit 1;
[ "$bytes" = none ] && die "no program of this build at $program";
for tool in tar sha256sum find; do
  command -v "$tool" >/dev/null || die "the copy needs $tool"; done;
mkdir -p "$cache" && chmod 700 "$cache" || die "cannot make $cache";
host=$(cat /proc/sys/kernel/random/boot_id)-$(readlink /proc/self/ns/pid | tr -dc 0-9);
for old in "$cache"/.part-"$host"-*; do
  [ -d "$old" ] && kill -0 "${old##*-}" 2>/dev/null || rm -rf "$old"; done;
find "$cache" -mindepth 1 -maxdepth 1 -mtime +30 -exec rm -rf {} + 2>/dev/null;
part=$cache/.part-$host-$$;
why=$(mkdir "$part" 2>&1) || die "cannot write to $cache: ${why##*: }";
why=$({ head -c "$bytes" >"$part/archive"; } 2>&1) || die "cannot write to $cache: ${why##*: }";
[ "$(sha256sum <"$part/archive" | cut -d" " -f1)" = "$hash" ] || die "the copy did not arrive whole";
why=$(tar -xf "$part/archive" -C "$part" 2>&1) || {
  why=$(echo "$why" | head -n 1); die "cannot unpack to $cache: ${why##*: }"; };
rm "$part/archive"; sync -f "$part";
works "$part" || die "the copy does not run there:
  $(LD_LIBRARY_PATH=$part/lib/troupe$libraries "$part/bin/$name" "$print_build" 2>&1 | tail -n 1)";
exec 9>"$cache/.lock"; flock 9 2>/dev/null;
if [ -e "$copy" ]; then works "$copy" || mv -T "$copy" "$part/replaced"; fi;
mv -T "$part" "$copy" 2>/dev/null || rm -rf "$part";
rm -rf "$copy/replaced"; exec 9>&-;
works "$copy" || die "cannot put the copy to $copy";
start_copy "$@";
)sh";

}  // namespace

std::string ssh_start_command(const SshStart& start) {
  std::string text = script;
  std::ranges::replace(text, '\n', ' ');
  std::string command = fmt::format("exec sh -c {} troupe {} {} {} {} {} {}", shell_word(text),
                                    agent_flag, build_flag, shell_word(start.program), start.build,
                                    shell_word(start.copy), shell_word(start.folder));
  for (const std::string& variable : start.environment) {
    command += ' ';
    command += shell_word(variable);
  }
  return command;
}

}  // namespace troupe

// A crawler's pipeline over a made-up web of 1,000 pages, in three stages: tasks without state
// fetch pages, in worker processes that the runtime keeps warm; actors that are started again after
// a crash read them; this process follows the links. At most 64 pages are under way, so a slow
// stage slows the ones before it and memory is bounded. A reader crashes halfway: its calls under
// way fail, are made again, and wait until it is back.
//
//   pipeline                     on this machine
//   pipeline --hosts h1,h2,h3    over ssh
// Both print "1000 pages with 41636 words, 1 crash survived".
#include <cstdio>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <troupe/troupe.hpp>
#include <unistd.h>

using namespace std::chrono_literals;

constexpr int pages = 1000;
constexpr std::size_t under_way = 64;

// A task is a plain function. It may run again if its process dies, so it should not change
// anything.
std::string fetch(int page) {
  std::string text =
      std::to_string((2 * page + 1) % pages) + ' ' + std::to_string((2 * page + 2) % pages);
  for (int word = 0; word < page % 86; ++word) text += " word";
  return text;
}

struct Page {
  std::vector<int> links;
  int words = 0;

  template <class Archive>
  void fields(Archive& archive) {
    archive(links, words);
  }
};

class Reader {
 public:
  Page read(const std::string& text) {
    Page page;
    std::size_t at = 0;
    for (int i = 0; i < 2; ++i) {
      std::size_t length = 0;
      page.links.push_back(std::stoi(text.substr(at), &length));
      at += length;
    }
    for (; (at = text.find(" word", at)) != std::string::npos; at += 5) ++page.words;
    return page;
  }
  void crash() { ::_exit(1); }

  using Methods = troupe::Methods<&Reader::read, &Reader::crash>;
};

// A page that is being read.
struct Reading {
  std::string text;
  troupe::ActorHandle<Reader> reader;
  troupe::Future<Page> page;
};

// Calls once more if the reader has crashed meanwhile; the call waits for its next incarnation.
troupe::Result<Page> finish(Reading reading) {
  auto page = reading.page.get(30s);
  if (page.ok() || !troupe::is_actor_gone(page.error().code)) return page;
  return reading.reader.call<&Reader::read>(reading.text).get(30s);
}

troupe::Result<void> crawl_all(std::string_view hosts) {
  TROUPE_TRY(auto options, troupe::ssh_cluster(hosts));
  TROUPE_TRY(const auto cluster, troupe::Cluster::start(std::move(options)));
  std::vector<troupe::ActorHandle<Reader>> readers;
  for (const auto& node : cluster->nodes()) {
    TROUPE_TRY(auto reader,
               cluster->spawn<Reader>({.node = node.spec.name, .max_restarts = 3}).get(10s));
    readers.push_back(std::move(reader));
  }

  std::vector<bool> seen(pages);
  std::deque<int> frontier{0};
  seen[0] = true;
  std::deque<troupe::Future<std::string>> fetching;
  std::deque<Reading> reading;
  std::size_t next_reader = 0;
  std::optional<troupe::Future<void>> crash;
  int done = 0, words = 0;
  while (!frontier.empty() || !fetching.empty() || !reading.empty()) {
    for (; !frontier.empty() && fetching.size() + reading.size() < under_way;
         frontier.pop_front()) {
      fetching.push_back(cluster->submit<&fetch>({}, frontier.front()));
    }
    for (; !fetching.empty() && (reading.empty() || fetching.front().ready());
         fetching.pop_front()) {
      TROUPE_TRY(auto text, fetching.front().get(30s));
      const auto& reader = readers[next_reader++ % readers.size()];
      reading.push_back({text, reader, reader.call<&Reader::read>(text)});
    }
    if (done == pages / 2) crash = readers.front().call<&Reader::crash>();
    TROUPE_TRY(const auto page, finish(std::move(reading.front())));
    reading.pop_front();
    ++done;
    words += page.words;
    for (const int link : page.links) {
      if (!seen[static_cast<std::size_t>(link)]) frontier.push_back(link);
      seen[static_cast<std::size_t>(link)] = true;
    }
  }
  if (const auto crashed = crash->get(30s);
      !crashed.ok() && !troupe::is_actor_gone(crashed.error().code)) {
    return crashed.error();
  }
  // An actor that is started again after a crash is the next incarnation of it.
  unsigned crashes = 0;
  for (const auto& actor : cluster->actors()) crashes += actor.address.incarnation;
  std::printf("%d pages with %d words, %u crash%s survived\n", done, words, crashes,
              crashes == 1 ? "" : "es");
  return {};
}

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  const bool over_hosts = argc == 3 && std::string_view(argv[1]) == "--hosts";
  if (argc > 1 && !over_hosts) {
    std::puts("pipeline [--hosts h1,h2,...]: crawls a made-up web on the nodes of a cluster");
    return std::string_view(argv[1]) == "--help" ? 0 : 2;
  }
  const auto crawled = crawl_all(over_hosts ? argv[2] : "");
  if (!crawled.ok()) std::fprintf(stderr, "pipeline: %s\n", crawled.error().message.c_str());
  return crawled.ok() ? 0 : 1;
}

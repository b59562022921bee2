// Counts words over the objects of several nodes. On every node an actor puts a part of a text into
// the object store, counts the words of a part that another node has put, and puts the counts, one
// object for each node by the words' first letters; then each node adds up the counts of its
// letters. The driver passes references alone: the text and the counts go from node to node
// directly, and between processes of a node without a copy.
//
//   word_count                       on this machine
//   word_count --hosts h1,h2,h3      over ssh
// Both print "130000 words: 30000 the, 20000 fox, 20000 river".
#include <algorithm>
#include <cstdio>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <troupe/troupe.hpp>

using namespace std::chrono_literals;

using Counts = std::map<std::string, int>;
using troupe::ObjectRef;

constexpr int sentences = 10000;
constexpr std::string_view sentence = "the fox by the river saw the fox in a quiet river again\n";

class WordCounter {
 public:
  explicit WordCounter(troupe::ActorContext& context) : context_(context) {}

  // The part's share of the text, which stays in this process.
  troupe::Result<ObjectRef<std::string>> write(int part, int parts) {
    std::string text;
    for (int i = part; i < sentences; i += parts) text += sentence;
    return context_.put(text);
  }

  // The counts of a text, in an object for each of `parts`.
  troupe::Result<std::vector<ObjectRef<Counts>>> count(const ObjectRef<std::string>& text,
                                                       int parts) {
    TROUPE_TRY(const auto view, context_.get(text, 30s));
    std::vector<Counts> counts(static_cast<std::size_t>(parts));
    std::istringstream words{std::string(*view)};
    for (std::string word; words >> word;) {
      ++counts[static_cast<unsigned char>(word[0]) % counts.size()][word];
    }
    std::vector<ObjectRef<Counts>> objects;
    for (const auto& part : counts) {
      TROUPE_TRY(auto object, context_.put(part));
      objects.push_back(std::move(object));
    }
    return objects;
  }

  troupe::Result<Counts> add_up(const std::vector<ObjectRef<Counts>>& objects) {
    Counts sum;
    for (const auto& object : objects) {
      TROUPE_TRY(const auto counts, context_.get(object, 30s));
      for (const auto& [word, number] : *counts) sum[word] += number;
    }
    return sum;
  }

  using Methods = troupe::Methods<&WordCounter::write, &WordCounter::count, &WordCounter::add_up>;

 private:
  troupe::ActorContext& context_;
};

// The answers of all, in order, or the first error.
template <class T>
troupe::Result<std::vector<T>> all(std::vector<troupe::Future<T>> futures) {
  std::vector<T> answers;
  for (auto& future : futures) {
    TROUPE_TRY(auto answer, future.get(60s));
    answers.push_back(std::move(answer));
  }
  return answers;
}

troupe::Result<Counts> count_words(std::string_view hosts) {
  TROUPE_TRY(auto options, troupe::ssh_cluster(hosts));
  TROUPE_TRY(const auto cluster, troupe::Cluster::start(std::move(options)));
  auto nodes = cluster->nodes();
  if (nodes.size() == 1) nodes.push_back(nodes.front());  // two actors, to have something to pass

  std::vector<troupe::Future<troupe::ActorHandle<WordCounter>>> spawned;
  for (const auto& node : nodes) {
    spawned.push_back(cluster->spawn<WordCounter>({.node = node.spec.name}));
  }
  TROUPE_TRY(const auto counters, all(std::move(spawned)));
  const auto parts = static_cast<int>(counters.size());

  std::vector<troupe::Future<ObjectRef<std::string>>> written;
  for (int i = 0; i < parts; ++i) {
    written.push_back(counters[static_cast<std::size_t>(i)].call<&WordCounter::write>(i, parts));
  }
  TROUPE_TRY(const auto texts, all(std::move(written)));

  std::vector<troupe::Future<std::vector<ObjectRef<Counts>>>> counted;
  for (std::size_t i = 0; i < counters.size(); ++i) {
    counted.push_back(counters[i].call<&WordCounter::count>(texts[(i + 1) % texts.size()], parts));
  }
  TROUPE_TRY(const auto counts, all(std::move(counted)));

  std::vector<troupe::Future<Counts>> added;
  for (std::size_t i = 0; i < counters.size(); ++i) {
    std::vector<ObjectRef<Counts>> of_letters;
    for (const auto& objects : counts) of_letters.push_back(objects[i]);
    added.push_back(counters[i].call<&WordCounter::add_up>(of_letters));
  }
  TROUPE_TRY(auto sums, all(std::move(added)));
  Counts total;
  for (auto& sum : sums) total.merge(sum);  // no two have a word in common
  return total;
}

int main(int argc, char** argv) {
  troupe::init(argc, argv);
  const bool over_hosts = argc == 3 && std::string_view(argv[1]) == "--hosts";
  if (argc > 1 && !over_hosts) {
    std::puts("word_count [--hosts h1,h2,...]: counts words on the nodes of a cluster");
    return std::string_view(argv[1]) == "--help" ? 0 : 2;
  }
  const auto counts = count_words(over_hosts ? argv[2] : "");
  if (!counts.ok()) {
    std::fprintf(stderr, "word_count: %s\n", counts.error().message.c_str());
    return 1;
  }
  int words = 0;
  std::vector<std::pair<int, std::string>> often;
  for (const auto& [word, number] : *counts) {
    words += number;
    often.emplace_back(-number, word);
  }
  std::ranges::sort(often);
  std::printf("%d words: %d %s, %d %s, %d %s\n", words, -often[0].first, often[0].second.c_str(),
              -often[1].first, often[1].second.c_str(), -often[2].first, often[2].second.c_str());
  return 0;
}

